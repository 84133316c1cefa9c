"""Console tables after ``run-offline``: rates by transform, the figures that must be zero, the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembench.console.table import NOT_MEASURED, Table, number, percent
from sembench.metrics import aggregate
from sembench.metrics.base import Figure
from sembench.metrics.rows import row_from_json
from sembench.must_be_zero import MUST_BE_ZERO, ZeroCheck

RATES: Final = (
    ("exact prefix", "exact_prefix_block_rate"),
    ("exact block", "exact_block_hit_rate"),
    ("any position", "any_position_token_rate"),
    ("candidate", "semantic_candidate_block_rate"),
    ("eligible", "semantic_eligible_block_rate"),
    ("lift", "semantic_eligible_lift"),
    ("beyond prefix", "beyond_prefix_planned_token_rate"),
    ("context risk", "mean_context_share"),
)
SHORT: Final = ("requests", "exact prefix", "any position", "eligible", "lift", "context risk")


def rates_table(result: Mapping[str, Any]) -> Table:
    rows = [_row(name, figures) for name, figures in result["by_transform"].items()]
    if len(rows) > 1:
        rows.append(_row("all", result["aggregate"]))
    columns = ("transform", "requests", "blocks", *(title for title, _ in RATES), "p50 ms", "p99 ms")
    tokenizer = result["config"]["tokenizer"]
    notes = [
        f"Evidence: {result['run']['evidence']}. Candidate and eligible are plans; no backend has confirmed reuse.",
        f"Tokenizer {tokenizer['name']}, block size {result['config']['block_size']}.",
    ]
    if tokenizer["warning"]:
        notes.append(f"Note: {tokenizer['warning']}.")
    if declined := result["aggregate"]["decline_reasons"]:
        notes.append("Declined: " + ", ".join(f"{reason} {count}" for reason, count in declined.items()) + ".")
    notes.append(_planner_note(result["config"]["planner"]))
    title = f"Offline replay of {result['run']['manifest']}"
    return Table(title, columns, tuple(rows), tuple(notes), ("transform", *SHORT))


def datasets_table(result: Mapping[str, Any]) -> Table | None:
    """The same rates by dataset; None if there is only one. A single mean would hide differences between datasets."""
    rows = [row_from_json(row, "requests") for row in result["requests"]]
    names = list(dict.fromkeys(row.dataset for row in rows))
    if len(names) < 2:
        return None
    figures = {name: aggregate([row for row in rows if row.dataset == name]) for name in names}
    columns = ("dataset", "requests", "blocks", *(title for title, _ in RATES), "p50 ms", "p99 ms")
    shown = tuple(_row(name, values) for name, values in figures.items())
    return Table("By dataset, all transforms together", columns, shown, short=("dataset", *SHORT))


def checks_table(result: Mapping[str, Any]) -> Table:
    """Every check, measured or not: a check that the manifest does not exercise must not look passed."""
    rows = [row_from_json(row, "requests") for row in result["requests"]]
    shown = [_check(check, check.measure(rows)) for check in MUST_BE_ZERO]
    repeated = result["aggregate"]["negative_control_any_position_token_rate"]
    notes = (f"Negative controls have {percent(repeated)} of their text in common with donors.",) if repeated else ()
    return Table("Figures that must be zero", ("check", "found", "of"), tuple(shown), notes)


def _check(check: ZeroCheck, figure: Figure | None) -> tuple[str, str, str]:
    if figure is None:
        return check.title, NOT_MEASURED, "not measured"
    value = percent(figure.value) if check.is_rate else number(figure.value)
    return check.title, value, f"{figure.numerator:,.0f} / {figure.denominator:,.0f}"


def _planner_note(planner: Mapping[str, Any]) -> str:
    runs = "exact runs only" if planner["exact_materialization_only"] else "shorter fragments too"
    return (
        f"Planner {planner['kind']}: min reuse ratio {planner['min_reuse_ratio']}, "
        f"min similarity {planner['min_similarity']}, min run {planner['min_run_tokens']} tokens, "
        f"embedder {planner['embedder']}, {runs}, fuzzy chunks {'on' if planner['fuzzy_chunks'] else 'off'}, "
        f"{'several donors' if planner['multi_donor'] else 'one donor'}."
    )


def ablation_table(result: Mapping[str, Any]) -> Table | None:
    """What the embedder adds to the token path; None if there was no embedder."""
    if result["aggregate"]["semantic_path_extra_eligible_blocks"] is None:
        return None
    rows = tuple(
        (
            name,
            number(figures["semantic_path_extra_candidate_blocks"]),
            number(figures["semantic_path_extra_eligible_blocks"]),
            number(figures["semantic_path_extra_discoveries"]),
            number(figures["requests"]),
        )
        for name, figures in [*result["by_transform"].items(), ("all", result["aggregate"])]
    )
    columns = ("transform", "extra candidate blocks", "extra eligible blocks", "requests only it finds", "requests")
    return Table(f"What the embedder '{result['config']['planner']['embedder']}' adds to the token path", columns, rows)


def _row(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        number(figures["requests"]),
        number(figures["total_blocks"]),
        *(percent(figures[metric]) for _, metric in RATES),
        number(figures["plan_latency_ms_p50"], 2),
        number(figures["plan_latency_ms_p99"], 2),
    )
