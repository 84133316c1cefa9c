"""What a person reads after ``run-offline``: rates by transform, the figures that must be zero, the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembench.console.table import Table, number, percent
from sembench.metrics import aggregate
from sembench.metrics.rows import row_from_json

_RATES: Final = (
    ("exact prefix", "exact_prefix_block_rate"),
    ("exact block", "exact_block_hit_rate"),
    ("any position", "any_position_token_rate"),
    ("candidate", "semantic_candidate_block_rate"),
    ("eligible", "semantic_eligible_block_rate"),
    ("lift", "semantic_eligible_lift"),
    ("beyond prefix", "beyond_prefix_planned_token_rate"),
    ("context risk", "mean_context_share"),
)
_CHECKS: Final = (
    ("planned tokens that are not the donor's", "unverified_planned_token_rate"),
    ("changed facts planned (hard negatives)", "changed_token_planned_rate"),
    ("negative controls: eligible blocks", "negative_control_semantic_eligible_block_rate"),
    ("negative controls: text repeated anyway", "negative_control_any_position_token_rate"),
)


def rates_table(result: Mapping[str, Any]) -> Table:
    rows = [_row(name, figures) for name, figures in result["by_transform"].items()]
    if len(rows) > 1:
        rows.append(_row("all", result["aggregate"]))
    columns = ("transform", "requests", "blocks", *(title for title, _ in _RATES), "p50 ms", "p99 ms")
    tokenizer = result["config"]["tokenizer"]
    notes = [
        f"Evidence: {result['run']['evidence']}. Candidate and eligible are plans; no backend has confirmed reuse.",
        f"Tokenizer {tokenizer['name']}, block size {result['config']['block_size']}.",
    ]
    if tokenizer["warning"]:
        notes.append(f"Note: {tokenizer['warning']}.")
    if declined := result["aggregate"]["decline_reasons"]:
        notes.append("Declined: " + ", ".join(f"{reason} {count}" for reason, count in declined.items()) + ".")
    return Table(f"Offline replay of {result['run']['manifest']}", columns, tuple(rows), tuple(notes))


def datasets_table(result: Mapping[str, Any]) -> Table | None:
    """The same rates by dataset; None if there is only one. Streams of different traffic must not hide in one mean."""
    rows = [row_from_json(row, "requests") for row in result["requests"]]
    names = list(dict.fromkeys(row.dataset for row in rows))
    if len(names) < 2:
        return None
    figures = {name: aggregate([row for row in rows if row.dataset == name]) for name in names}
    columns = ("dataset", "requests", "blocks", *(title for title, _ in _RATES), "p50 ms", "p99 ms")
    return Table("By dataset, all transforms together", columns, tuple(_row(n, f) for n, f in figures.items()))


def checks_table(result: Mapping[str, Any]) -> Table:
    """Only what this manifest can show: a stream has neither hard negatives nor negative controls."""
    figures = result["aggregate"]
    measured = [(title, name) for title, name in _CHECKS if figures[name] is not None]
    rows = [(title, percent(figures[name]), _parts(figures, name)) for title, name in measured]
    return Table("Figures that should be zero", ("check", "rate", "of"), tuple(rows))


def ablation_table(result: Mapping[str, Any]) -> Table | None:
    """What the embedder adds to the token path; None when no embedder ran."""
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
    columns = ("transform", "extra candidate blocks", "extra eligible blocks", "requests only it points at", "requests")
    return Table(f"What the embedder '{result['config']['planner']['embedder']}' adds to the token path", columns, rows)


def _row(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        number(figures["requests"]),
        number(figures["total_blocks"]),
        *(percent(figures[metric]) for _, metric in _RATES),
        number(figures["plan_latency_ms_p50"], 2),
        number(figures["plan_latency_ms_p99"], 2),
    )


def _parts(figures: Mapping[str, Any], name: str) -> str:
    parts = figures["parts"][name]
    return f"{parts['numerator']:,.0f} / {parts['denominator']:,.0f}"
