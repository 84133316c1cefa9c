"""Figures of a run -> tables, ratios to the rivals, and targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.console import show_table
from benchmarks.planner.plan_of_run import BOILERPLATE, REAL, ZIPF
from benchmarks.planner.prompts import HIT_CASES
from benchmarks.planner.scenario import NOT_RUN, OURS, OURS_LISTS, Measured
from benchmarks.planner.tokens import DONOR_TOKENS
from benchmarks.targets import Spread, Verdict

KB = 1_000.0


def show_stores(results: Sequence[Measured]) -> None:
    rows = []
    for result in results:
        fill = result.fill
        resident, accounted = result.bytes_per_donor("resident_bytes"), result.bytes_per_donor("accounted_bytes")
        rows.append(
            (
                result.scenario.subject,
                result.scenario.profile,
                f"{result.scenario.donors:,}",
                f"{fill.get('donors', 0):,}",
                _number(result.registrations_per_s(), "{:,.0f}"),
                _number(_per_cpu_second(fill), "{:,.0f}"),
                _number(fill.get("last_register_per_s"), "{:,.0f}"),
                _number(fill.get("register_p99_ms"), "{:.3f}"),
                _number(fill.get("register_max_ms"), "{:.1f}"),
                None if resident is None else f"{resident / KB:.2f}",
                None if accounted is None else f"{accounted / KB:.2f}",
                result.failure or fill.get("stopped"),
            )
        )
    columns = ("subject", "profile", "wanted", "donors", "reg/s", "reg/s CPU", "reg/s last", "p99 ms", "max ms")
    show_table("Stores (2,048-token donors; KB = 1,000 B)", (*columns, "RSS KB/donor", "accounted KB", "state"), rows)


def _per_cpu_second(fill: dict[str, Any]) -> float | None:
    """On a shared machine wall time includes other processes, so CPU time is used."""
    return fill["donors"] / fill["register_cpu_s"] if fill.get("register_cpu_s") else None


def show_lookups(results: Sequence[Measured]) -> None:
    rows = []
    for result in results:
        for block in result.blocks:
            spread, cpu = Spread.of(block["wall_ms"]), Spread.of(block["cpu_ms"])
            rows.append(
                (
                    result.scenario.subject,
                    result.scenario.profile,
                    f"{result.fill['donors']:,}",
                    f"{block['case']} {block['prompt_tokens']:,}",
                    block["prompts"],
                    None if spread is None else f"{spread.p50:.3f}",
                    None if spread is None else f"{spread.p99:.3f}",
                    None if cpu is None else f"{cpu.p50:.3f}",
                    None if cpu is None else f"{cpu.p99:.3f}",
                    f"{block['answered']}/{block['prompts']}",
                    None if not block["reusable"] else f"{block['found'] / block['reusable']:.4f}",
                    block["wrong"],
                )
            )
    columns = ("subject", "profile", "donors", "case, tokens", "n", "p50 ms", "p99 ms", "CPU p50", "CPU p99")
    show_table("Look-ups", (*columns, "answered", "reusable found", "wrong tokens"), rows)


def ratios(results: Sequence[Measured]) -> list[dict[str, Any]]:
    """For every look-up of a rival, ours on the same profile with at least as many donors, fed arrays or lists."""
    found: list[dict[str, Any]] = []
    for rival in results:
        if rival.scenario.subject.startswith(OURS):
            continue
        for ours in _counterparts(rival, results):
            found += [record for block in rival.blocks if (record := _ratio(rival, block, ours))]
    return found


def _counterparts(rival: Measured, results: Sequence[Measured]) -> Iterator[Measured]:
    for subject in (OURS, OURS_LISTS):
        same = [r for r in results if (r.scenario.subject, r.scenario.profile) == (subject, rival.scenario.profile)]
        enough = [r for r in same if r.scenario.donors >= rival.scenario.donors]
        if enough and (subject == OURS or rival.scenario.donors == enough[0].scenario.donors):
            yield min(enough, key=lambda r: r.scenario.donors)


def _ratio(rival: Measured, block: dict[str, Any], ours: Measured) -> dict[str, Any] | None:
    mine = ours.block(block["case"], block["prompt_tokens"])
    theirs, own = Spread.of(block["wall_ms"]), Spread.of(mine["wall_ms"]) if mine else None
    if mine is None or theirs is None or own is None:
        return None
    return {
        "rival": rival.scenario.subject,
        "ours": ours.scenario.subject,
        "profile": rival.scenario.profile,
        "rival_donors": rival.fill["donors"],
        "our_donors": ours.fill["donors"],
        "case": f"{block['case']} {block['prompt_tokens']:,}",
        "our_p50_ms": own.p50,
        "rival_p50_ms": theirs.p50,
        "times_faster_p50": theirs.p50 / own.p50,
        "times_faster_p99": theirs.p99 / own.p99,
        "our_found": mine["found"] / mine["reusable"] if mine["reusable"] else None,
        "rival_found": block["found"] / block["reusable"] if block["reusable"] else None,
    }


def show_ratios(records: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            record["rival"],
            record["ours"],
            record["profile"],
            f"{record['rival_donors']:,} / {record['our_donors']:,}",
            record["case"],
            f"{record['rival_p50_ms']:.3f}",
            f"{record['our_p50_ms']:.3f}",
            f"{record['times_faster_p50']:.2f}x",
            f"{record['times_faster_p99']:.2f}x",
            _number(record["rival_found"], "{:.3f}"),
            _number(record["our_found"], "{:.3f}"),
        )
        for record in records
    ]
    columns = ("rival", "ours", "profile", "donors rival / ours", "case, tokens", "rival p50 ms", "ours p50 ms")
    show_table("Ours against each rival", (*columns, "faster p50", "faster p99", "rival found", "ours found"), rows)


def verdicts(results: Sequence[Measured]) -> list[Verdict]:
    ours = [r for r in results if r.scenario.subject == OURS]
    return [*_laws(results), *_targets(ours)]


def _laws(results: Sequence[Measured]) -> Iterator[Verdict]:
    measured = [r for r in results if r.scenario.subject.startswith(OURS)]
    if not measured:
        return
    blocks = [block for result in measured for block in result.blocks]
    reusable, found = sum(b["reusable"] for b in blocks), sum(b["found"] for b in blocks)
    wrong = sum(b["wrong"] for b in blocks) if blocks else None  # ours names every donor
    yield Verdict("ours: planned tokens that differ", "==", 0, wrong, is_law=True)
    yield Verdict(
        "ours: reusable tokens found, all cases", "==", 1, found / reusable if reusable else None, is_law=True
    )
    misses = sum(b["answered"] for b in blocks if b["case"] == "miss") if blocks else None
    yield Verdict("ours: plans for unseen prompts", "==", 0, misses, is_law=True)
    failed = sum(1 for result in measured if result.failure and not result.failure.startswith(NOT_RUN))
    yield Verdict("ours: processes that died", "==", 0, failed, is_law=True)


def _targets(ours: Sequence[Measured]) -> Iterator[Verdict]:
    for profile in (ZIPF, BOILERPLATE, REAL):
        sizes = [r.scenario.donors for r in ours if r.scenario.profile == profile and r.scenario.donors <= 50_000]
        for result in [r for r in ours if r.scenario.profile == profile and r.scenario.donors == max(sizes, default=0)]:
            yield from _store_targets(result)
    by_size = {r.scenario.donors: r for r in ours if r.scenario.profile == ZIPF}
    if 1_000 in by_size and 1_000_000 in by_size:
        small, large = (by_size[n].spread(HIT_CASES, DONOR_TOKENS) for n in (1_000, 1_000_000))
        ratio = large.p50 / small.p50 if small and large else None
        yield Verdict("p50 hit at 1,000,000 donors over p50 at 1,000", "<=", 1.5, ratio, "x")
    if 1_000_000 in by_size:
        yield from _size_targets(by_size[1_000_000])


def _store_targets(result: Measured) -> Iterator[Verdict]:
    label = f"{result.scenario.profile}, {result.fill.get('donors', 0):,}"
    hit, miss = result.spread(HIT_CASES, DONOR_TOKENS), result.spread(("miss",), DONOR_TOKENS)
    yield Verdict(f"{label}: 2K hit p50", "<=", 0.3, hit.p50 if hit else None, "ms")
    yield Verdict(f"{label}: 2K hit p99", "<=", 1.5, hit.p99 if hit else None, "ms")
    yield Verdict(f"{label}: 2K miss p50", "<=", 0.2, miss.p50 if miss else None, "ms")
    if result.block("head_only", DONOR_TOKENS):
        head = result.spread(("head_only",), DONOR_TOKENS)
        yield Verdict(f"{label}: 2K shared head alone p50 (the hit limit)", "<=", 0.3, head.p50 if head else None, "ms")
    for tokens, limit in ((8_192, 0.8), (32_768, 3.0), (131_072, 15.0)):
        if result.block("composed", tokens):
            spread = result.spread(("composed",), tokens)
            yield Verdict(f"{label}: {tokens // 1024}K composed p50", "<=", limit, spread.p50 if spread else None, "ms")
    yield from _size_targets(result)


def _size_targets(result: Measured) -> Iterator[Verdict]:
    label = f"{result.scenario.profile}, {result.fill.get('donors', 0):,}"
    yield Verdict(f"{label}: registrations", ">=", 5_000, result.registrations_per_s(), "/s")
    for key, name in (("resident_bytes", "RSS"), ("accounted_bytes", "accounted")):
        value = result.bytes_per_donor(key)
        yield Verdict(f"{label}: {name} per donor", "<=", 14, None if value is None else value / KB, "KB")


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)
