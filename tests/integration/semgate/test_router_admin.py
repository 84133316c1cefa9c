"""The admin surface over TLS: who may ask, what can be changed while requests run, and that nothing leaks upwards."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import subprocess
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.raw_client import Reply, ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from sembase.http.server import HttpServer
from semgate.router.operations.admin import AdminApp
from semgate.router.operations.explain import fetch_decisions
from semgate.router.operations.settings_check import read_admin_key

KEY = "a key of the operator alone"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


@asynccontextmanager
async def with_admin(folder: Path, **settings: Any) -> AsyncIterator[tuple[Rig, int]]:
    async with router_rig(folder, **settings) as rig:
        server = HttpServer(AdminApp(rig.gateway, KEY), host="127.0.0.1", port=0, shutdown_seconds=1.0)
        try:
            yield rig, await server.start()
        finally:
            await server.stop()


async def admin(port: int, method: str, path: str, body: Any = None, key: str = KEY) -> Reply:
    return await ask(port, path, body, method=method, headers={"authorization": f"Bearer {key}"})


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}])
def test_without_the_key_nothing_is_revealed(headers: dict[str, str], tmp_path: Path) -> None:
    async def work() -> None:
        async with with_admin(tmp_path) as (_, port):
            for path in ("/admin/replicas", "/admin/decisions", "/metrics", "/readyz", "/nothing"):
                reply = await ask(port, path, method="GET", headers=headers)
                assert (reply.status, reply.error_code) == (401, "unauthorized")
            assert (await ask(port, "/healthz", method="GET")).status == 200

    run(work())


def test_replicas_are_listed_drained_and_set(tmp_path: Path) -> None:
    async def work() -> None:
        async with with_admin(tmp_path) as (rig, port):
            listed = json.loads((await admin(port, "GET", "/admin/replicas")).body)["replicas"]
            assert [(each["name"], each["state"]) for each in listed] == [("a", "ready"), ("b", "ready")]
            assert (await admin(port, "POST", "/admin/replicas/a/drain")).status == 200
            assert {(await ask(rig.port, body=chat())).header("x-semantickv-replica") for _ in range(4)} == {"b"}
            assert (await admin(port, "POST", "/admin/replicas/a/undrain")).status == 200
            third = FaultReplica(name="c")
            await third.start()
            wanted = [f"{rig.replica('a').origin};name=a", f"{third.origin};name=c"]
            change = json.loads((await admin(port, "PUT", "/admin/replicas", {"replicas": wanted})).body)
            assert (change["added"], change["removed"]) == (["c"], ["b"])
            assert {(await ask(rig.port, body=chat())).header("x-semantickv-replica") for _ in range(4)} == {"a", "c"}
            await third.die()

    run(work())


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/admin/replicas", b"not json", 400),
        ("PUT", "/admin/replicas", {"replicas": ["ftp://nowhere"]}, 400),
        ("PUT", "/admin/replicas", {"replicas": []}, 400),
        ("PUT", "/admin/replicas", b"[" * 100_000, 400),
        ("POST", "/admin/replicas/nobody/drain", None, 400),
        ("POST", "/admin/replicas/a/explode", None, 404),
        ("DELETE", "/admin/replicas", None, 405),
        ("GET", "/admin/decisions?limit=-1", None, 400),
        ("GET", "/admin/decisions?limit=" + "1" * 5_000, None, 400),
        ("GET", "/admin/decisions/unheard-of", None, 404),
        ("GET", "/elsewhere", None, 404),
        ("POST", "/admin/reload", None, 400),
        ("PUT", "/admin/replicas", b"x" * (2 << 20), 413),
    ],
)
def test_wrong_questions_change_nothing(method: str, path: str, body: Any, status: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with with_admin(tmp_path) as (rig, port):
            assert (await admin(port, method, path, body)).status == status
            assert [replica.name for replica in rig.gateway.roster.fleet] == ["a", "b"]

    run(work())


def test_changes_and_wrong_keys_leave_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with with_admin(tmp_path) as (_, port):
            await admin(port, "POST", "/admin/replicas/a/drain")
            for _ in range(50):
                await admin(port, "GET", "/admin/replicas", key="wrong")
            await admin(port, "POST", "/admin/replicas/nobody/drain")

    with caplog.at_level(logging.INFO, "semgate"):
        run(work())
    lines = [record.fields for record in caplog.records if record.getMessage() == "admin request"]  # type: ignore[attr-defined]
    assert [(each["path"], each["status"]) for each in lines if each["method"] == "POST"] == [
        ("/admin/replicas/a/drain", 200),
        ("/admin/replicas/nobody/drain", 400),
    ]
    refused = [each for each in lines if each["status"] == 401]
    assert len(refused) + sum(each["lines_left_out"] for each in lines) == 50
    assert {each["client"] for each in lines} == {"127.0.0.1"}
    assert KEY not in caplog.text


def test_decisions_are_found_by_request_id(tmp_path: Path) -> None:
    async def work() -> None:
        async with with_admin(tmp_path) as (rig, port):
            first = await ask(rig.port, body=chat(), headers={"x-request-id": "mine-1"})
            second = await ask(rig.port, body=chat())
            assert first.header("x-request-id") == "mine-1"
            (mine,) = json.loads((await admin(port, "GET", "/admin/decisions/mine-1")).body)["decisions"]
            assert (mine["replica"], mine["outcome"], mine["status"]) == ("a", "complete", 200)
            latest = json.loads((await admin(port, "GET", "/admin/decisions?limit=1")).body)["decisions"]
            assert [each["request_id"] for each in latest] == [second.header("x-request-id")]
            (found,) = await asyncio.to_thread(fetch_decisions, f"http://127.0.0.1:{port}", "mine-1", KEY, None)
            assert found.replica == "a"
            with pytest.raises(ConfigurationError, match="rejected the key"):
                await asyncio.to_thread(fetch_decisions, f"http://127.0.0.1:{port}", "mine-1", "x" * 20, None)

    run(work())


def test_a_client_cannot_replace_the_decision_of_another_tenant(tmp_path: Path) -> None:
    async def work() -> None:
        async with with_admin(tmp_path) as (rig, port):
            for key, outcome in (("alice", 200), ("mallory", 200), ("mallory", 200)):
                headers = {"x-request-id": "of-alice", "authorization": f"Bearer {key}"}
                assert (await ask(rig.port, body=chat(), headers=headers)).status == outcome
            mallory, alice = await asyncio.to_thread(fetch_decisions, f"http://127.0.0.1:{port}", "of-alice", KEY, None)
            assert (mallory.request_id, alice.request_id) == ("of-alice", "of-alice")
            assert mallory.tenant != alice.tenant
            assert alice.replica == "a", "the first of all"

    run(work())


def test_over_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )

    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            app = AdminApp(rig.gateway, KEY)
            server = HttpServer(app, host="127.0.0.1", port=0, tls_cert_file=cert, tls_key_file=key)
            port = await server.start()
            trusted = ssl.create_default_context(cafile=cert)
            reply = await ask(port, "/admin/replicas", method="GET", headers={"x-semgate-admin-key": KEY}, tls=trusted)
            assert reply.status == 200
            await ask(rig.port, body=chat(), headers={"x-request-id": "over-tls"})
            assert await asyncio.to_thread(fetch_decisions, f"https://127.0.0.1:{port}", "over-tls", KEY, cert)
            with pytest.raises(ConfigurationError, match="cannot reach"):  # an unknown certificate is not believed
                await asyncio.to_thread(fetch_decisions, f"https://127.0.0.1:{port}", "over-tls", KEY, None)
            await server.stop()

    run(work())


def test_the_admin_key_never_reaches_a_replica(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, forward_authorization=True) as rig:
            await ask(rig.port, body=chat(), headers={"x-semgate-admin-key": KEY, "authorization": "Bearer client"})
            seen = dict(rig.replica("a").seen[0].headers)
            assert KEY not in seen.values()
            assert seen["authorization"] == "Bearer client"

    run(work())


def test_a_short_or_missing_key_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "key"
    short.write_text("short\n")
    with pytest.raises(ConfigurationError, match="at least 16 characters"):
        read_admin_key(short)
    with pytest.raises(ConfigurationError, match="--admin-api-key-file"):
        read_admin_key(None)
