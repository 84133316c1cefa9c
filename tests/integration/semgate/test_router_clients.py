"""Clients at the router: only known keys, limits per tenant, and nothing that steers engines."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.raw_client import ask, chat
from tests.fakes.router_rig import router_rig
from tests.waiting import PATIENCE_S

from semgate.router.request.engine_fields import UNREADABLE, engine_field
from semgate.router.request.inspection import with_cache_salt

PARAMS = {"do_remote_prefill": True, "remote_host": "10.6.6.6"}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def keys_file(folder: Path, **limits: int) -> Path:
    lines = [f"{name} = {value}" for name, value in limits.items()]
    tables = [
        f'[tenants.{name}]\nkeys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n' + "\n".join(more)
        for name, key, more in (("acme", "k1", lines), ("other", "k2", []))
    ]
    path = folder / "keys.toml"
    path.write_text("\n".join(tables))
    return path


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_only_known_keys_are_served_and_keys_of_one_tenant_are_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", client_keys_file=keys_file(tmp_path)) as rig:
            for headers in ({}, bearer("nobody"), {"x-tenant-id": "acme"}, {"authorization": "Basic k1"}):
                reply = await ask(rig.port, body=chat(), headers=headers)
                assert (reply.status, reply.error_code) == (401, "invalid_api_key")
            assert rig.replica("a").requests == 0
            for headers in (bearer("k1"), {"authorization": "bearer  k1"}, {"x-api-key": "k1"}, bearer("k2")):
                assert (await ask(rig.port, body=chat(), headers=headers)).status == 200
            other, *same = [each.tenant for each in rig.gateway.ring.latest(4)]
            assert len(set(same)) == 1
            assert other not in same
            assert (await ask(rig.port, "/healthz", method="GET")).status == 200

    run(work())


def test_a_tenant_at_its_limit_does_not_stop_another(tmp_path: Path) -> None:
    async def work() -> None:
        path = keys_file(tmp_path, concurrent_requests=1)
        async with router_rig(tmp_path, "a", client_keys_file=path) as rig:
            rig.replica("a").resume.clear()
            first = asyncio.ensure_future(ask(rig.port, body=chat(), headers=bearer("k1")))
            await rig.replica("a").answering.wait()
            refused = await ask(rig.port, body=chat(), headers=bearer("k1"))
            assert (refused.status, refused.header("retry-after")) == (429, "1")
            rig.replica("a").resume.set()
            assert (await ask(rig.port, body=chat(), headers=bearer("k2"))).status == 200
            assert (await first).status == 200
            assert (await ask(rig.port, body=chat(), headers=bearer("k1"))).status == 200, "the place is free again"

    run(work())


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"kv_transfer_params": PARAMS}, "kv_transfer_params"),
        ({"kv_transfer_params": {"semblend": {}, **PARAMS}}, "kv_transfer_params"),
        ({"bootstrap_host": "10.6.6.6"}, "bootstrap_host"),
        ({"data_parallel_rank": 0}, "data_parallel_rank"),
        ({"vllm_xargs": {"kv_transfer_params": PARAMS}}, "vllm_xargs.kv_transfer_params"),
        ({"kv_transfer_params": {"semblend": {"a": 1}}}, None),
        ({"kv_transfer_params": None}, None),
        ({"messages": [{"role": "user", "content": "what is kv_transfer_params?"}]}, None),
        ({"prompt": "\\u006bv"}, None),
    ],
)
def test_fields_that_steer_engines_are_found(body: dict[str, Any], found: str | None) -> None:
    plain = json.dumps(body).encode()
    assert engine_field(plain) == found
    assert engine_field(plain.replace(b'"kv_', b'"\\u006bv_').replace(b'"boot', b'"\\u0062oot')) == found
    assert engine_field(plain[:-1] + b', "temperature": NaN}') == found
    large = plain[:-1] + b', "pad": "' + b"x" * (1 << 20) + b'"}'
    assert engine_field(large) == found


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_a_body_that_is_not_in_utf_8_is_refused(encoding: str, tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "kv_transfer_params": PARAMS}).encode(encoding)
    assert with_cache_salt(body, "s") is None

    async def work() -> None:
        async with router_rig(tmp_path, "a", allow_engine_fields=True) as rig:
            reply = await ask(rig.port, body=body)
            assert (reply.status, reply.error_code) == (400, "not_json")
            assert rig.replica("a").requests == 0

    run(work())


@pytest.mark.parametrize("pad", [0, 1 << 20])
@pytest.mark.parametrize(
    "fields", [b'"kv_transfer_params": {"a": 1}', b'"vllm_xargs": {"kv_transfer_params": {"z": 9%s}}' % (b"9" * 4_400)]
)
def test_a_number_that_python_refuses_hides_no_field(fields: bytes, pad: int) -> None:
    """A front that skips members it does not know reads the rest."""
    body = b'{%s, "pad": "%s", "z": 9%s}' % (fields, b"x" * pad, b"9" * 4_400)
    assert engine_field(body) is not None


def test_a_body_that_only_an_engine_might_read_is_refused() -> None:
    body = b'{"kv_transfer_params": {}, "temperature": NaN, "pad": "' + b"x" * (1 << 20) + b'"}'
    assert engine_field(body) == UNREADABLE
    assert engine_field(b'{"kv_transfer_params": ') == UNREADABLE
    assert engine_field(b'{"prompt": ') is None, "nothing in it steers engines"
    assert engine_field(b"[" * 100_000 + b'"kv_transfer_params"') == UNREADABLE


def test_the_engine_sees_no_steering_unless_allowed(tmp_path: Path) -> None:
    sent = {
        "x-data-parallel-rank": "1",
        "x-gateway-destination-endpoint": "10.6.6.6:80",
        "x-forwarded-for": "10.6.6.6",
        "x-prefiller-host-port": "10.6.6.6:1",
        "x-other": "kept",
    }

    async def work(allowed: bool) -> None:
        async with router_rig(tmp_path / str(allowed), "a", allow_engine_fields=allowed) as rig:
            assert (await ask(rig.port, body=chat(), headers=sent)).status == 200
            refused = await ask(rig.port, body=chat(kv_transfer_params=PARAMS))
            assert refused.status == (200 if allowed else 400)
            if not allowed:
                assert refused.error_code == "field_not_allowed"
            first = dict(rig.replica("a").seen[0].headers)
            assert {name for name in sent if name in first} == (set(sent) if allowed else {"x-other"})
            assert rig.replica("a").requests == (2 if allowed else 1)

    run(work(False))
    run(work(True))
