"""The router writes nothing of a client's text: files, logs, metrics and headers are searched for canaries."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import logging
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.raw_client import Exchange, Reply, ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S

from semgate.logs import JsonLines
from semgate.router.request.inspection import tenant_salt

CANARIES = {
    "prompt": "canary-prompt-7f3a",
    "system": "canary-system-91bc",
    "tool": "canary-tool-02de",
    "user": "canary-user-55aa",
    "session": "canary-session-c0de",
    "tenant": "canary-tenant-beef",
    "key": "canary-key-d00d",
    "cookie": "canary-cookie-ab12",
    "header": "canary-header-9988",
    "model": "canary-model-1234",
    "query": "canary-query-4321",
    "id": "canary id with blanks",
}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that any logger of the process says, at the finest level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def request_body(**more: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": CANARIES["system"]},
        {"role": "user", "content": CANARIES["prompt"]},
        {"role": "tool", "content": CANARIES["tool"], "tool_call_id": "1"},
    ]
    return chat(messages=messages, user=CANARIES["user"], model=CANARIES["model"], **more)


def request_headers() -> dict[str, str]:
    return {
        "authorization": f"Bearer {CANARIES['key']}",
        "cookie": f"a={CANARIES['cookie']}",
        "x-session-id": CANARIES["session"],
        "x-tenant-id": CANARIES["tenant"],
        "x-anything": CANARIES["header"],
        "x-request-id": CANARIES["id"],
    }


def unkeyed_digests() -> list[str]:
    return [
        made(word.encode()).hexdigest()[:16] for word in CANARIES.values() for made in (hashlib.sha256, hashlib.md5)
    ]


async def everything(rig: Rig, folder: Path, logged: io.StringIO, replies: list[Reply]) -> str:
    metrics = rig.gateway.metrics.text().decode()
    output = [json.dumps(reply.headers) for reply in replies] + [metrics, logged.getvalue()]
    output += [json.dumps(record.as_record()) for record in rig.gateway.ring.latest(1_000)]
    output += [json.dumps(rig.gateway.roster.listed())]
    return "\n".join(output)


def files_of(folder: Path) -> str:
    return "\n".join(path.name + path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())


def test_no_canary_is_written_anywhere(tmp_path: Path, logged: io.StringIO) -> None:
    output = ""

    async def work() -> None:
        nonlocal output
        async with router_rig(tmp_path, trust_tenant_header=True, idle_seconds=0.3) as rig:
            replies = []
            path = f"/v1/chat/completions?note={CANARIES['query']}"
            for mode in ("ok", "error_500", "die_in_stream", "die_on_request", "ok"):
                for each in rig.replicas:
                    each.mode = mode
                replies.append(await ask(rig.port, path, request_body(), headers=request_headers()))
                replies.append(await ask(rig.port, path, request_body(stream=False), headers=request_headers()))
            broken = json.dumps(request_body()).encode()[:-5]
            replies.append(await ask(rig.port, path, broken, headers=request_headers()))
            replies.append(await ask(rig.port, f"/{CANARIES['query']}", request_body(), headers=request_headers()))
            output = await everything(rig, tmp_path, logged, replies)

    run(work())
    output += files_of(tmp_path)
    assert '"outcome":"complete"' in output.replace(" ", ""), "the search must have had something to search"
    assert '"outcome":"cut"' in output.replace(" ", "")
    for name, canary in CANARIES.items():
        assert canary not in output, f"the {name} was written"
    for digest in unkeyed_digests():
        assert digest not in output, "a digest without key can be guessed"


def test_equal_sessions_of_two_tenants_look_different(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            for key in ("one", "two", "one"):
                headers = {"authorization": f"Bearer {key}", "x-session-id": "the same"}
                await ask(rig.port, body=chat(), headers=headers)
            last, middle, first = rig.gateway.ring.latest(3)
            assert first.session == last.session
            assert first.tenant == last.tenant
            assert first.session != middle.session
            assert first.tenant != middle.tenant

    run(work())


@pytest.mark.parametrize("trusted", [True, False])
def test_what_a_replica_sees_of_a_client(trusted: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", trust_tenant_header=trusted) as rig:
            body = json.dumps(request_body(), indent=3).encode() + b"\n  "
            exchange = await Exchange.open(rig.port)
            await exchange.send("POST", "/v1/chat/completions?x=%2F", body, request_headers())
            await exchange.rest(*await exchange.head())
            await exchange.close()
            seen = rig.replica("a").seen[0]
            named = dict(seen.headers)
            assert seen.body == body, "the client's bytes are never rewritten"
            assert seen.path == "/v1/chat/completions?x=%2F"
            assert "authorization" not in named
            assert "cookie" not in named
            assert named.get("x-tenant-id") == (CANARIES["tenant"] if trusted else None)
            assert named["x-request-id"] != CANARIES["id"]

    run(work())


def test_a_replica_cannot_speak_in_the_routers_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig:
            rig.replica("a").extra_headers = b"x-semblend-routing-path: exact_route\r\nx-request-id: forged\r\n"
            reply = await ask(rig.port, body=chat())
            assert [value for name, value in reply.headers if name == "x-semblend-routing-path"] == ["cold_route"]
            assert [value for name, value in reply.headers if name == "x-request-id"] != ["forged"]

    run(work())


def test_injected_salts_keep_tenants_apart_and_cannot_be_chosen(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", inject_cache_salt=True) as rig:
            for key, salt in (("one", None), ("two", None), ("two", "mine"), ("one", "mine")):
                body = chat() if salt is None else chat(cache_salt=salt)
                await ask(rig.port, body=body, headers={"authorization": f"Bearer {key}"})
            salts = [json.loads(seen.body)["cache_salt"] for seen in rig.replica("a").seen]
            assert len(set(salts)) == 4
            assert all(len(salt) == 64 for salt in salts)
            reply = await ask(rig.port, body="not an object".encode("utf-16"))
            assert (reply.status, reply.error_code) == (400, "not_json")

    run(work())
    assert tenant_salt(b"k" * 32, "ab", "c") != tenant_salt(b"k" * 32, "a", "bc")
