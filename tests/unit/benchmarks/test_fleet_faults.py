"""Faults of a fleet's parts without servers: what is asked, when the fault comes and goes, and what counts as wrong."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.fleet.faults import ITEMS, lose_engine, lose_part
from benchmarks.fleet.readings import Readings
from benchmarks.vllm.client import Reply, RequestFailedError
from benchmarks.vllm.happenings import RequestResult

COLD, REUSED, OTHER = (1, 2, 3), (1, 2, 4), (9, 9, 9)


class FakeReplica:
    """Reuses while nothing is broken; what it answers otherwise is ``broken``."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name
        self.is_broken = False
        self.broken: tuple[int, ...] | None = COLD
        self.slower_ms = 0.0  # as on a machine that has more to do
        self.holds = ""  # how salts end whose donors there are
        self.asked = Counter({"searches found": 5})

    def forget_donors(self) -> None:
        self.log.append(f"{self.name} forgets")

    def kill(self) -> None:
        self.log.append(f"{self.name} killed")

    def start(self) -> None:
        self.log.append(f"{self.name} started")

    def ask(self, ask: Any, **_: Any) -> tuple[Reply, RequestResult]:
        self.log.append(f"{self.name} asked" if ask.reuse else f"{self.name} control")
        is_reused = ask.reuse and not self.is_broken and ask.salt.endswith(self.holds)
        self.asked.update(
            {"searches found": ask.reuse, "fetches fetched" if is_reused else "fetches missing": ask.reuse}
        )
        if self.is_broken and self.broken is None:
            raise RequestFailedError("500")
        answer = self.broken if self.is_broken and self.broken else COLD
        tokens = REUSED if is_reused else answer
        first_token_ms = (100.0 if ask.reuse else 40.0) + self.slower_ms
        outcome = "backend_materialized_reuse" if is_reused else "cold_fallback"
        return Reply("id", tokens, first_token_ms, 200.0, 0), RequestResult(outcome, reused_tokens=900 * is_reused)

    def asked_fleet(self) -> Counter[str]:
        return Counter(self.asked)

    def ask_queued(self, ask: Any) -> tuple[Reply, RequestResult, float]:
        return *self.ask(ask), 7.0


class FakeFleet:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.a, self.b = FakeReplica(self.log, "a"), FakeReplica(self.log, "b")
        self.has_snapshots = False

    def keep_entries(self) -> None:
        self.log.append("entries kept")

    def announce_again(self) -> None:
        self.log.append("announced again")

    def publish(self, item: Any, salt: str, by: FakeReplica) -> None:
        self.log.append(f"published {salt} by {by.name}")

    def send_signal(self, part: str, number: signal.Signals) -> None:
        self.log.append(f"{part} {number.name}")
        self.b.is_broken = number is not signal.SIGCONT

    def restart(self, part: str) -> None:
        self.log.append(f"{part} restarted")
        self.b.is_broken = False


class FakeWorkload:
    def make(self, size: str, case: str, number: int) -> Any:
        return SimpleNamespace(number=number, recipient=(1,) * 1024, donors=())


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    monkeypatch.setattr("benchmarks.fleet.faults.threading.Timer", _AtOnce)
    return FakeFleet()


class _AtOnce:
    """The fault comes when the request is about to be sent."""

    def __init__(self, _delay_s: float, call: Any, arguments: list[Any]) -> None:
        self.ident: int | None = None
        self._call, self._arguments = call, arguments

    def start(self) -> None:
        self.ident = 1
        self._call(*self._arguments)

    def join(self) -> None:
        assert self.ident, "the fault never came"


def lose(fleet: FakeFleet, readings: Readings, event: str, count: int) -> None:
    lose_part(fleet, FakeWorkload(), readings, "run", event, "1K", count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "fault", "end"),
    [
        ("store node stopped", "store node SIGSTOP", "store node SIGCONT"),
        ("directory killed", "directory SIGKILL", "directory restarted"),
    ],
)
def test_every_request_of_a_fault_needs_the_fleet_and_the_fault_ends(
    fleet: FakeFleet, tmp_path: Path, event: str, fault: str, end: str
) -> None:
    readings = Readings(tmp_path / "r.jsonl", {})
    lose(fleet, readings, event, 40)
    found = readings.faults(event)
    during = fleet.log[fleet.log.index(fault) : fleet.log.index(end)]
    assert (during.count("b asked"), during.count("b forgets")) == (40, 39)  # it forgot before the fault, too
    assert during.count("b control") == 40
    assert len({each.number for each in found}) == ITEMS
    assert not any(each.is_failed or each.is_wrong or each.reused_tokens for each in found)
    assert {each.queued_ms for each in found} == {7.0}
    assert [each.asked for each in found] == [{"searches found": 1, "fetches missing": 1}] * 40
    assert len(readings.recoveries(event)) == 1
    assert fleet.log.index("entries kept") < fleet.log.index(fault)


def test_added_time_is_against_a_control_beside_the_request_and_not_against_an_earlier_one(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    readings, send_signal = Readings(tmp_path / "r.jsonl", {}), fleet.send_signal

    def slow_down(part: str, number: signal.Signals) -> None:
        fleet.b.slower_ms = 5_000.0  # the load rises with the fault
        send_signal(part, number)

    fleet.send_signal = slow_down  # type: ignore[method-assign]
    lose(fleet, readings, "store node stopped", 4)
    assert [each.added_ms for each in readings.faults("store node stopped")] == [60.0] * 4
    during = fleet.log[fleet.log.index("store node SIGSTOP") : fleet.log.index("store node SIGCONT")]
    order = [line for line in during if line in ("b asked", "b control")]
    assert order == ["b asked", "b control", "b control", "b asked"] * 2, "first and second in turns"


@pytest.mark.parametrize(("event", "times"), [("store master killed", 40), ("directory stopped", 0)])
def test_donors_missed_in_the_store_are_announced_again_and_not_while_the_directory_is_gone(
    fleet: FakeFleet, tmp_path: Path, event: str, times: int
) -> None:
    lose(fleet, Readings(tmp_path / "r.jsonl", {}), event, 40)
    end = "directory SIGCONT" if event == "directory stopped" else "store master restarted"
    assert fleet.log[: fleet.log.index(end)].count("announced again") == times


@pytest.mark.parametrize(
    ("event", "has_snapshots", "is_lost", "is_kept"),
    [
        ("store master killed", False, False, False),
        ("store master killed", True, False, True),
        ("store master killed", True, True, False),
        ("store node stopped", False, False, True),
        ("store node stopped", False, True, False),
        ("store node killed", True, False, False),
    ],
)
def test_after_a_fault_old_donors_are_asked_for_where_they_may_be_left_and_new_ones_captured_otherwise(
    fleet: FakeFleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    event: str,
    has_snapshots: bool,
    is_lost: bool,
    is_kept: bool,
) -> None:
    monkeypatch.setattr("benchmarks.fleet.faults.KEPT_S", 0.01)
    fleet.has_snapshots = has_snapshots
    restored = fleet.restart, fleet.send_signal

    def losing(call: Any) -> Any:
        def ended(*arguments: Any) -> None:
            call(*arguments)
            fleet.b.holds = "-again" if is_lost and not fleet.b.is_broken else ""

        return ended

    fleet.restart, fleet.send_signal = map(losing, restored)  # type: ignore[method-assign]
    readings = Readings(tmp_path / "r.jsonl", {})
    lose(fleet, readings, event, 1)
    assert [each.is_kept for each in readings.recoveries(event)] == [is_kept]
    assert any(line.endswith("-again by a") for line in fleet.log) is not is_kept


def test_an_interrupted_fault_asks_for_what_is_missing(fleet: FakeFleet, tmp_path: Path) -> None:
    readings = Readings(tmp_path / "r.jsonl", {})
    lose(fleet, readings, "directory stopped", 10)
    lose(fleet, readings, "directory stopped", 40)
    assert len(readings.faults("directory stopped")) == 40


@pytest.mark.parametrize(("broken", "failed", "wrong"), [(OTHER, 0, 4), (REUSED, 0, 4), (None, 4, 0)])
def test_other_answers_are_wrong_and_errors_are_failures(
    fleet: FakeFleet, tmp_path: Path, broken: tuple[int, ...] | None, failed: int, wrong: int
) -> None:
    readings = Readings(tmp_path / "r.jsonl", {})
    fleet.b.broken = broken
    lose(fleet, readings, "store master stopped", 4)
    found = readings.faults("store master stopped")
    assert (sum(each.is_failed for each in found), sum(each.is_wrong for each in found)) == (failed, wrong)


def test_donors_of_a_killed_engine_are_asked_for_on_the_other_one_and_in_its_next_life(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    readings = Readings(tmp_path / "r.jsonl", {})
    lose_engine(fleet, FakeWorkload(), readings, "run", "1K", 3)  # type: ignore[arg-type]
    killed, started = fleet.log.index("a killed"), fleet.log.index("a started")
    assert fleet.log[killed:started].count("b asked") == 3
    assert fleet.log[started:].count("a asked") == 3
    assert all(each.reused_tokens for each in readings.faults("capturing engine restarted"))
