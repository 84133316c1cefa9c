"""Readings in, tables and verdicts out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from benchmarks.estimates import median_and_range
from benchmarks.fleet.faults import AFTER_KILL, AFTER_RESTART, DIRECTORY_FAULTS, PART_FAULTS
from benchmarks.fleet.readings import FaultReading, PairReading, Readings
from benchmarks.targets import Verdict

MAX_REMOTE_OVER_LOCAL: Final = 1.5
MIN_COLD_OVER_REMOTE: Final = 5.0  # at 2K
MAX_READ_OVER_PLANNED: Final = 1.1
MAX_KL_DIFFERENCE: Final = 1e-4
PAIR_COLUMNS: Final = (
    *("prompt", "n", "cold ms", "local donor ms", "remote donor ms", "cold / remote", "remote / local"),
    *("reused remote, local", "of tokens", "bytes read / planned", "KL remote", "KL local"),
)
FAULT_COLUMNS: Final = (
    *("event", "n", "failed", "wrong", "reused", "searches", "fetches"),
    *("TTFT ms", "control TTFT ms", "added TTFT ms, median", "max"),
    *("queued ms, median", "max", "reuse again after s", "old donors kept"),
)


def pair_rows(readings: Readings, sizes: Sequence[str]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for size in sizes:
        if not (found := readings.pairs(size)):
            continue
        rows.append(
            (
                size,
                len(found),
                *(median_and_range([getattr(each, name) for each in found], "{:.0f}") for name in _TIMES),
                median_and_range([_cold_over_remote(each) for each in found], "{:.1f}"),
                median_and_range([_remote_over_local(each) for each in found], "{:.2f}"),
                ", ".join(f"{median(getattr(each, name) for each in found):.0f}" for name in _TOKENS),
                found[0].prompt_tokens,
                median_and_range([each for each in map(_read_over_planned, found) if each is not None], "{:.3f}"),
                f"{median(each.remote_kl for each in found):.4f}",
                f"{median(each.local_kl for each in found):.4f}",
            )
        )
    return rows


def fault_rows(readings: Readings) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for event in (AFTER_KILL, AFTER_RESTART, *PART_FAULTS):
        if not (found := readings.faults(event)):
            continue
        answered = [each for each in found if not each.is_failed]
        added = [each.added_ms for each in answered]
        queued = [each.queued_ms for each in answered]
        recovered = readings.recoveries(event)
        rows.append(
            (
                event,
                len(found),
                sum(each.is_failed for each in found),
                sum(each.is_wrong for each in found),
                sum(each.reused_tokens > 0 for each in found),
                *(_counts(found, kind) for kind in ("searches", "fetches")),
                *(median_and_range([getattr(each, name) for each in answered], "{:.0f}") for name in _FAULT_TIMES),
                *(f"{of(values):.0f}" if values else None for values in (added, queued) for of in (median, max)),
                f"{recovered[-1].seconds:.1f}" if recovered else None,
                ("yes" if recovered[-1].is_kept else "no") if recovered else None,
            )
        )
    return rows


def verdicts_of(
    readings: Readings, sizes: Sequence[str], wait_s: float, events: Iterable[str] = DIRECTORY_FAULTS
) -> list[Verdict]:
    """``events``: the faults that a run makes."""
    events = tuple(events)
    verdicts = []
    for size in sizes:
        found = readings.pairs(size)

        def middle(of: Callable[[PairReading], float | None], found: list[PairReading] = found) -> float | None:
            values = [value for each in found if (value := of(each)) is not None]
            return median(values) if values else None

        verdicts += [
            Verdict(f"{size}: remote over local TTFT, median", "<=", MAX_REMOTE_OVER_LOCAL, middle(_remote_over_local)),
            Verdict(
                f"{size}: bytes read over bytes loaded, worst",
                "<=",
                MAX_READ_OVER_PLANNED,
                max((ratio for each in found if (ratio := _read_over_planned(each)) is not None), default=None),
            ),
            Verdict(
                f"{size}: items whose remote donor was not reused as the local one",
                "==",
                0,
                sum(each.remote_tokens != each.local_tokens for each in found) if found else None,
            ),
            Verdict(
                f"{size}: KL of remote minus KL of local, worst",
                "<=",
                MAX_KL_DIFFERENCE,
                max((each.remote_kl - each.local_kl for each in found), default=None),
            ),
        ]
        if size == "2K":
            floor = MIN_COLD_OVER_REMOTE
            verdicts.append(Verdict("2K: cold over remote TTFT, median", ">=", floor, middle(_cold_over_remote)))
    for event in (AFTER_KILL, AFTER_RESTART):
        asked = readings.faults(event)
        missed = sum(not each.reused_tokens for each in asked) if asked else None
        verdicts.append(Verdict(f"{event}: requests without its donors", "==", 0, missed))
    faults = [each for event in (AFTER_KILL, AFTER_RESTART, *events) for each in readings.faults(event)]
    verdicts += [
        Verdict("failed requests", "==", 0, sum(each.is_failed for each in faults) if faults else None, is_law=True),
        Verdict("wrong answers", "==", 0, sum(each.is_wrong for each in faults) if faults else None, is_law=True),
    ]
    for event in events:
        answered = [each for each in readings.faults(event) if not each.is_failed]
        for name, values in (
            ("added TTFT", [each.added_ms for each in answered]),
            ("time in the queue", [each.queued_ms for each in answered]),
        ):
            verdicts.append(Verdict(f"{event}: {name}, worst", "<=", wait_s * 1e3, max(values, default=None), "ms"))
    return verdicts


def _counts(readings: Sequence[FaultReading], kind: str) -> str | None:
    """``found 38, nothing 2``: results of searches, or outcomes of fetches, most frequent first."""
    total: Counter[str] = Counter()
    for each in readings:
        total.update(each.asked)
    found = ((name.removeprefix(f"{kind} "), n) for name, n in total.most_common() if name.startswith(f"{kind} "))
    return ", ".join(f"{name} {n}" for name, n in found) or None


def _cold_over_remote(reading: PairReading) -> float:
    return reading.cold_ms / reading.remote_ms


def _remote_over_local(reading: PairReading) -> float:
    return reading.remote_ms / reading.local_ms


def _read_over_planned(reading: PairReading) -> float | None:
    return reading.read_bytes / reading.planned_bytes if reading.planned_bytes else None


_TIMES: Final = ("cold_ms", "local_ms", "remote_ms")
_FAULT_TIMES: Final = ("first_token_ms", "control_ms")
_TOKENS: Final = ("remote_tokens", "local_tokens")
