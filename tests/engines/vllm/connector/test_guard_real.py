"""The guard against a real server: answers compared, a class turned off, reset.

Two minutes on two free cores, half of it the start of the server.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripts.engines.ports import free_port
from scripts.engines.specs import SERVED_NAME, vllm_missing
from tests.engines.vllm.connector.client import Ask, Reply, read_reply
from tests.engines.vllm.connector.connector_server import (
    OPEN,
    ConnectorServer,
    Kind,
    events_path,
    start,
)
from tests.engines.vllm.connector.prompts import Texts, opening, read_texts
from tests.unit.semgate.proxy.running_proxy import SRC, play, proxy_process
from tests.waiting import PATIENCE_S, wait_until

from semblend.contract import Declined, Event, PlanShape
from semblend.guard.verdicts import Verdicts, decode_tracker

pytestmark = [pytest.mark.engine, pytest.mark.slow]

REUSED = "backend_materialized_reuse"
DOCUMENT_TOKENS = 500
SANE_KL = 0.2  # of a sound blend's answer; broken ones have 0.1 to 1.3
OFF = f"guard_off:{PlanShape.NEW_INSTRUCTION.value}"
MAX_CHECKS = 16
STATUS_PORT = free_port()
COMMAND = ("-c", "import sys; from semblend.cli.main import main; sys.exit(main())")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guard")


def running(options: dict[str, object], *, faulty: bool) -> Iterator[ConnectorServer]:
    missing = vllm_missing()
    if missing:
        pytest.skip(missing)
    server = start(Kind({**OPEN, **options}, faulty=faulty))
    try:
        yield server
    finally:
        server.server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[ConnectorServer]:
    # Without the check of loads, which would refuse the fault that the guard is to find.
    yield from running({"guard_verdicts": str(folder / "guard.json"), "verify_loads": False}, faulty=True)


@pytest.fixture(scope="module")
def prose(guarded: ConnectorServer) -> Texts:
    return read_texts(guarded.client)


def semblend(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *COMMAND, *arguments],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


class Traffic:
    """A tenant whose documents are donors already; each recipient has an opening of its own, so no exact prefix."""

    def __init__(self, server: ConnectorServer, prose: Texts, salt: str, documents: int) -> None:
        self.salt = salt
        self._prose = prose
        self._documents = [prose.passage(n * 2 * DOCUMENT_TOKENS, DOCUMENT_TOKENS) for n in range(documents)]
        for document in self._documents:
            server.wait_for_donor(server.client.ask(Ask(document, salt=salt)))

    def recipient(self, number: int) -> Ask:
        document = self._documents[number % len(self._documents)]
        return Ask(self._prose.question(document, opening(number)), salt=self.salt, capture=False)

    def edited(self, number: int) -> Ask:
        document = self._documents[number % len(self._documents)]
        middle = DOCUMENT_TOKENS // 2
        changed = [*document[:middle], *self._prose.encode(" as was corrected later,"), *document[middle:]]
        return Ask(self._prose.question(changed, opening(number)), salt=self.salt, capture=False)


async def asked(port: int, ask: Ask) -> Reply:
    async with httpx.AsyncClient(trust_env=False, timeout=300) as client:
        answer = await client.post(f"http://127.0.0.1:{port}/v1/completions", json=ask.body(SERVED_NAME, stream=False))
    assert answer.status_code == 200, answer.text
    return read_reply(answer.json())


async def counts() -> dict[str, float]:
    """What became of sampled requests, as the proxy's metrics say it."""
    async with httpx.AsyncClient(trust_env=False, timeout=300) as client:
        page = (await client.get(f"http://127.0.0.1:{STATUS_PORT}/metrics")).text
    prefix = 'semgate_guard_requests_total{as="'
    lines = [line.removeprefix(prefix) for line in page.splitlines() if line.startswith(prefix)]
    return {line.partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


async def counted(name: str, number: int) -> dict[str, float]:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await counts())[name] < number:
            assert not found["failed"], found
            await asyncio.sleep(0.1)
    return found


def guard_flags(path: Path) -> tuple[str, ...]:
    return (
        "--guard-fraction",
        "1.0",
        "--guard-file",
        str(path),
        "--guard-pairs-per-minute",
        "600",
        "--status-port",
        str(STATUS_PORT),
    )


def guard_events(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = path.with_suffix(".events.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == kind]


def fresh(folder: Path) -> Path:
    for path in folder.glob("guard*"):
        path.unlink()
    return folder / "guard.json"


def test_a_blend_is_asked_again_twice_and_what_was_not_blended_once(
    guarded: ConnectorServer, prose: Texts, folder: Path, tmp_path: Path
) -> None:
    path, traffic = fresh(folder), Traffic(guarded, prose, "sound", 2)
    before = len(request_ids(guarded))

    async def act() -> None:
        async with proxy_process(guarded.server.base_url, tmp_path, *guard_flags(path)) as (port, _):
            for number in range(2):
                reply = await asked(port, traffic.recipient(number))
                assert reply.outcome == REUSED, reply.semblend
            found = await counted("checked", 2)
            stranger = await asked(port, Ask(prose.passage(9_000, 300), salt="nobody", capture=False))
            assert stranger.outcome != REUSED
            found = await counted("not_blended", 1)
        assert found == {"checked": 2, "not_blended": 1, "turned_off": 0, "dropped": 0, "failed": 0, "unwritten": 0}

    play(act, 4 * PATIENCE_S)
    assert len(request_ids(guarded)) - before == 3 + 2 * 2 + 1, "clients' requests, two pairs, one half of a pair"
    test = decode_tracker(path.read_text()).tests[SERVED_NAME, PlanShape.NEW_INSTRUCTION]
    assert test.process.count == 2
    assert 0.0 < test.worst_kl < SANE_KL
    assert [event["workload_class"] for event in guard_events(path, "guard_checked")] == ["new_instruction"] * 2
    shown = semblend("guard", str(path))
    assert shown.stdout.startswith(f"{SERVED_NAME} new_instruction: on: mean KL 0.")


def test_wrongly_moved_keys_turn_their_class_off_until_it_is_reset(
    guarded: ConnectorServer, prose: Texts, folder: Path, tmp_path: Path
) -> None:
    """The connector under test moves keys 64 positions too far; nothing but the guard can notice."""
    path, traffic = fresh(folder), Traffic(guarded, prose, "broken", 4)

    async def act() -> None:
        async with proxy_process(guarded.server.base_url, tmp_path, *guard_flags(path)) as (port, _):
            guarded.set_fault("rope:64")
            for number in range(MAX_CHECKS):
                assert (await asked(port, traffic.recipient(number))).outcome == REUSED
                if (await counted("checked", number + 1))["turned_off"]:
                    break
            guarded.set_fault()

    try:
        play(act, 4 * PATIENCE_S)
    finally:
        guarded.set_fault()
    why = Verdicts(path).why_off(SERVED_NAME, PlanShape.NEW_INSTRUCTION)
    assert why is not None, semblend("guard", str(path)).stdout
    assert [event["workload_class"] for event in guard_events(path, "guard_turned_off")] == ["new_instruction"]

    declined_before = guarded.client.metrics().get(declined_metric(), 0.0)
    wait_until(lambda: decline(guarded, traffic) == OFF, "the engine has not read the verdict")
    last = guarded.client.ask(traffic.recipient(70))
    assert (last.semblend["outcome"], last.semblend["reason"]) == ("cold_fallback", OFF)
    assert last.semblend["detail"] == why
    assert [event.detail for event in guarded.events_of(last) if isinstance(event, Declined)] == [why]
    assert guarded.client.metrics()[declined_metric()] > declined_before
    explained = semblend("explain", last.request_id, "--events", str(events_path(guarded.folder)))
    assert "the guard turned off the class 'new_instruction'" in explained.stdout, explained
    assert f"{SERVED_NAME} new_instruction: off" in semblend("guard", str(path)).stdout
    other = guarded.client.ask(traffic.edited(71))
    assert (other.outcome, other.semblend["class"]) == (REUSED, "edit"), "one class is off, not the others"

    done = semblend("guard", str(path), "--reset", SERVED_NAME, "new_instruction")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: decline(guarded, traffic) is None, "the engine has not read the reset")


_numbers = iter(range(1_000, 2_000))


def decline(server: ConnectorServer, traffic: Traffic) -> str | None:
    """Why the next recipient was not blended; a prompt of its own each time, or it would be an exact prefix."""
    reason: str | None = server.client.ask(traffic.recipient(next(_numbers))).semblend["reason"]
    return reason


def declined_metric() -> str:
    return f'vllm:semblend_declined_total{{reason="{OFF}"}}'


def request_ids(server: ConnectorServer) -> set[str]:
    def named(event: Event) -> str:
        return getattr(event, "request_id", "")

    return {name for event in server.events() if (name := named(event))}
