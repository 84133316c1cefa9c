"""The fleet benchmark without servers: readings kept and read back, tables and verdicts from what there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.fleet.faults import AFTER_KILL, AFTER_RESTART
from benchmarks.fleet.figures import fault_rows, pair_rows, verdicts_of
from benchmarks.fleet.readings import FaultReading, PairReading, Readings, RecoveryReading

PAIR = PairReading(
    size="2K",
    number=0,
    prompt_tokens=2048,
    cold_ms=6000.0,
    remote_ms=1000.0,
    local_ms=800.0,
    remote_tokens=1900,
    local_tokens=1900,
    read_bytes=1050,
    planned_bytes=1000,
    remote_kl=0.01,
    local_kl=0.01,
    load_average=1.0,
)
FAULT = FaultReading(
    event="directory killed",
    number=0,
    outcome="cold",
    reused_tokens=0,
    prompt_tokens=1024,
    first_token_ms=9150.0,
    control_ms=9000.0,
)


@pytest.fixture
def readings(tmp_path: Path) -> Readings:
    return Readings(tmp_path / "r.jsonl", {"seed": 0})


def words(readings: Readings) -> dict[str, str]:
    return {verdict.name: verdict.word for verdict in verdicts_of(readings, ["2K"], wait_s=2.0)}


def test_an_interrupted_run_is_continued_and_one_with_other_settings_is_not(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    first = Readings(path, {"seed": 0})
    for reading in (PAIR, FAULT, RecoveryReading(event="directory killed", seconds=3.0)):
        first.add(reading)
    assert Readings(path, {"seed": 0}).all == first.all
    assert Readings(path, {"seed": 1}).all == []


def test_nothing_measured_is_no_pass_and_prints(readings: Readings) -> None:
    assert set(words(readings).values()) == {"NOT MEASURED"}
    assert pair_rows(readings, ["2K"]) == fault_rows(readings) == []


def test_targets_are_reached_by_good_readings_alone(readings: Readings) -> None:
    readings.add(PAIR)
    for event in (AFTER_KILL, AFTER_RESTART):
        readings.add(replace(FAULT, event=event, reused_tokens=900))
    for event in ("directory killed", "directory stopped"):
        readings.add(replace(FAULT, event=event))
    assert set(words(readings).values()) == {"PASS"}


@pytest.mark.parametrize(
    ("bad", "name", "word"),
    [
        (replace(PAIR, remote_ms=1300.0), "2K: remote over local TTFT, median", "NOT REACHED"),
        (replace(PAIR, cold_ms=4000.0), "2K: cold over remote TTFT, median", "NOT REACHED"),
        (replace(PAIR, read_bytes=1200), "2K: bytes read over bytes loaded, worst", "NOT REACHED"),
        (
            replace(PAIR, remote_tokens=0, planned_bytes=0),
            "2K: items whose remote donor was not reused as the local one",
            "NOT REACHED",
        ),
        (replace(PAIR, remote_kl=0.02), "2K: KL of remote minus KL of local, worst", "NOT REACHED"),
        (replace(FAULT, is_failed=True), "failed requests", "VIOLATED"),
        (replace(FAULT, is_wrong=True), "wrong answers", "VIOLATED"),
        (replace(FAULT, first_token_ms=11500.0), "directory killed: added TTFT, worst", "NOT REACHED"),
        (replace(FAULT, queued_ms=2500.0), "directory killed: time in the queue, worst", "NOT REACHED"),
        (replace(FAULT, event=AFTER_RESTART), f"{AFTER_RESTART}: requests without its donors", "NOT REACHED"),
    ],
)
def test_each_target_notices_its_own_fault(
    readings: Readings, bad: PairReading | FaultReading, name: str, word: str
) -> None:
    readings.add(bad)
    assert words(readings)[name] == word


def test_rows_give_median_and_range(readings: Readings) -> None:
    for number, remote_ms in enumerate((500.0, 1000.0, 2000.0)):
        readings.add(replace(PAIR, number=number, remote_ms=remote_ms))
    readings.add(replace(FAULT, queued_ms=40.0, asked={"searches found": 1, "fetches missing": 2}))
    readings.add(replace(FAULT, queued_ms=40.0, asked={"searches paused": 1, "fetches fetched": 1}))
    readings.add(replace(FAULT, queued_ms=40.0, asked={"searches paused": 1}))
    readings.add(RecoveryReading(event="directory killed", seconds=3.0, is_kept=True))
    ((size, n, cold, *_, ratio, _remote_over_local, tokens, _of, _read, _kl, _kl_local),) = pair_rows(readings, ["2K"])
    assert (size, n, cold, ratio, tokens) == ("2K", 3, "6000 [6000, 6000]", "6.0 [3.0, 12.0]", "1900, 1900")
    ((event, n, _, _, _, searches, fetches, *times, _queued, _queued_max, again, kept),) = fault_rows(readings)
    assert (event, n, searches, fetches) == ("directory killed", 3, "paused 2, found 1", "missing 2, fetched 1")
    assert times == ["9150 [9150, 9150]", "9000 [9000, 9000]", "150", "150"]
    assert (again, kept) == ("3.0", "yes")
