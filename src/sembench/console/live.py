"""Console tables after a live run: pairs by transform, totals with intervals, outcomes and decline reasons.

Hit-only figures are always shown next to the blended one, with their n.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.console.answers import answers_table
from sembench.console.table import NOT_MEASURED, Table, number, percent
from sembench.flips import answer_classes
from sembench.metrics.rows import ArmRow, RequestRow, row_from_json
from sembench.report.cold import COLD_IS_A_MISS

_SHORT_PAIRED: Final = ("transform", "pairs", "blended", "n", "hit-only", "hit n", "confirmed", "quality")
_SHORT_ONE_ARM: Final = ("transform", "requests", "ok", "TTFT ms", "confirmed", "quality")


def live_tables(result: Mapping[str, Any]) -> list[Table]:
    rows = [row_from_json(row, "requests") for row in result["requests"]]
    paired = result["paired"]
    tables = [_one_arm_table(result, rows)] if paired is None else [_pairs_table(result, rows), _summary_table(result)]
    if paired is not None:
        classes = answer_classes(rows, block_size=paired["block_size"], seed=paired["bootstrap_seed"])
        tables += [answers_table(classes)] if classes else []
    if outcomes := _outcomes_table(rows):
        tables.append(outcomes)
    return tables


def _pairs_table(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> Table:
    """One line per transform. Speedups of negative controls have their own column: they must be 1."""
    paired = result["paired"]
    lines = [
        _pair_line(name, figures, [row for row in rows if row.transform == name], result["by_transform"][name])
        for name, figures in paired["by_transform"].items()
    ]
    lines.append(_pair_line("all", paired, rows, result["aggregate"]))
    columns = (
        *("transform", "pairs", "clean", "cold ms", "warm ms", "blended", "n", "hit-only", "hit n"),
        *("negatives", "neg n", "confirmed", "quality", "flips", "KL"),
    )
    config, run = result["config"], result["run"]
    notes = [
        f"Evidence: {run['evidence']}; confirmed: blocks the backend itself reported as reused.",
        "Speedup: median of cold TTFT / warm TTFT over clean pairs. Blended: all except negatives, misses included. "
        "Hit-only: pairs with confirmed reuse; only meaningful next to blended.",
        f"{config['endpoint']}, block size {config['block_size']}, arms isolated by {config['isolation']}, "
        f"seed {config['seed']}.",
        COLD_IS_A_MISS,
    ]
    if config["recipient_resets"]:
        notes.append("The exact cache was reset before each warm recipient, so it contributes nothing to the saving.")
    notes += _attempts_note(run)
    return Table(f"Paired live replay of {run['manifest']}", columns, tuple(lines), tuple(notes), _SHORT_PAIRED)


def _attempts_note(run: Mapping[str, Any]) -> list[str]:
    """Failures discarded by a resumed run: without them, a server that often fails would look healthy."""
    attempts = run.get("sittings") or []
    if len(attempts) < 2:
        return []
    failed = sum(attempt["failed_items"] for attempt in attempts[:-1])
    return [f"Measured in {len(attempts)} attempts; {failed} items that failed in earlier ones were measured again."]


def _pair_line(
    name: str, figures: Mapping[str, Any], rows: Sequence[RequestRow], aggregate: Mapping[str, Any]
) -> tuple[str, ...]:
    return (
        name,
        number(figures["pairs"]),
        number(figures["clean_pairs"]),
        number(_median_ms([row.cold for row in rows if row.warm is not None])),
        number(_median_ms([row.warm for row in rows if row.cold is not None])),
        _times(figures["blended_ttft_speedup_median"]),
        number(figures["blended_ttft_speedup_n"]),
        _times(figures["hit_only_ttft_speedup_median"]),
        number(figures["hit_only_ttft_speedup_n"]),
        _times(figures["negative_control_ttft_speedup_median"]),
        number(figures["negative_control_ttft_speedup_n"]),
        percent(aggregate["backend_confirmed_block_rate"]),
        percent(aggregate["quality_pass_rate"]),
        number(figures["answer_flips"]),
        number(figures["warm_vs_cold_mean_kl_topk"], 4),
    )


def _summary_table(result: Mapping[str, Any]) -> Table:
    paired = result["paired"]
    lines = [
        _speedup_line("blended: every clean pair, misses included", paired, "blended_ttft"),
        _speedup_line("  of these with confirmed reuse (hit-only)", paired, "hit_only_ttft"),
        _speedup_line("  of these without (misses)", paired, "miss_ttft"),
        _speedup_line("negative controls (must be 1)", paired, "negative_control_ttft"),
    ]
    failed = ", ".join(f"{status} {count}" for status, count in paired["failed_arm_statuses"].items())
    notes = [
        f"Pairs {paired['pairs']}: clean {paired['clean_pairs']}, cold arm not cold "
        f"{paired['flush_contaminated_pairs']} (checked {paired['contamination_checked_pairs']}), "
        f"failed {paired['failed_pairs']}{f' ({failed})' if failed else ''}.",
        f"KL warm against cold: mean {number(paired['warm_vs_cold_mean_kl_topk'], 5)}, worst "
        f"{number(paired['warm_vs_cold_worst_kl_topk'], 4)} nats, n={paired['warm_vs_cold_kl_n']}; reused alone: mean "
        f"{number(paired['reused_warm_vs_cold_mean_kl_topk'], 5)}, n={paired['reused_warm_vs_cold_kl_n']}.",
        f"Answer flips {number(paired['answer_flips'])} of {paired['answer_flip_n']}; identical texts "
        f"{number(paired['identical_texts'])} of {paired['identical_text_n']}.",
        f"Loaded KV that reached the exact cache: {number(paired['propagation_contaminated_requests'])} of "
        f"{paired['propagation_probed_requests']} blended requests that were sent again.",
    ]
    if unregistered := result["run"].get("preparation", {}).get("unregistered_donors"):
        notes.append(
            f"{unregistered} of {result['run']['preparation']['donors']} donors were not registered in time (too "
            "short, or blended themselves); raise --settle-ms if that is unexpected."
        )
    return Table("TTFT, cold over warm", ("pairs", "median", "95 % interval", "n"), tuple(lines), tuple(notes))


def _speedup_line(title: str, paired: Mapping[str, Any], name: str) -> tuple[str, ...]:
    interval = paired[f"{name}_speedup_ci95"]
    shown = NOT_MEASURED if interval is None else f"{interval[0]:.2f} - {interval[1]:.2f}"
    return title, _times(paired[f"{name}_speedup_median"]), shown, number(paired[f"{name}_speedup_n"])


def _one_arm_table(result: Mapping[str, Any], rows: Sequence[RequestRow]) -> Table:
    names = list(dict.fromkeys(row.transform for row in rows))
    groups = [(name, [row for row in rows if row.transform == name]) for name in names]
    figures = {**result["by_transform"], "all": result["aggregate"]}
    lines = tuple(_one_arm_line(name, members, figures[name]) for name, members in [*groups, ("all", rows)])
    run, arm = result["run"], result["config"]["arms"]
    notes = (
        f"Evidence: {run['evidence']}; confirmed: blocks the backend itself reported as reused.",
        f"One arm ({arm}): no speedup can be derived. Run with --paired, or add a cold run with merge-results.",
        *_attempts_note(run),
    )
    columns = ("transform", "requests", "ok", "TTFT ms", "cached tokens", "confirmed", "quality")
    return Table(f"Live replay of {run['manifest']}, {arm}", columns, lines, notes, _SHORT_ONE_ARM)


def _one_arm_line(name: str, rows: Sequence[RequestRow], figures: Mapping[str, Any]) -> tuple[str, ...]:
    arms = [arm for row in rows if (arm := row.warm or row.cold) is not None]
    cached = [arm.cached_tokens for arm in arms if arm.cached_tokens is not None]
    return (
        name,
        number(len(arms)),
        number(sum(arm.status == "ok" for arm in arms)),
        number(_median_ms(arms)),
        number(sum(cached) if cached else None),
        percent(figures["backend_confirmed_block_rate"]),
        percent(figures["quality_pass_rate"]),
    )


def _outcomes_table(rows: Sequence[RequestRow]) -> Table | None:
    """None if the backend reported on no request."""
    reported = [(row, row.backend) for row in rows if row.backend is not None]
    if not reported:
        return None
    counts = Counter((backend.outcome, backend.decline_reason or "") for _, backend in reported)
    negative = Counter(
        (backend.outcome, backend.decline_reason or "") for row, backend in reported if row.negative_control
    )
    lines = tuple(
        (outcome, reason or NOT_MEASURED, number(count), number(negative[outcome, reason]))
        for (outcome, reason), count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    )
    silent = len(rows) - len(reported)
    notes = (f"The backend did not report on {silent} of {len(rows)} requests.",) if silent else ()
    columns = ("outcome of the warm request", "reason", "requests", "negative controls")
    return Table("Outcomes reported by the backend", columns, lines, notes)


def _median_ms(arms: Sequence[ArmRow | None]) -> float | None:
    times = [
        arm.ttft_ms
        for arm in arms
        if arm is not None and arm.status == "ok" and arm.contaminated is not True and arm.ttft_ms is not None
    ]
    return statistics.median(times) if times else None


def _times(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.2f}x"
