"""Several studies side by side: where LRU wins stands on top."""

from __future__ import annotations

from collections.abc import Sequence

from onepage.chart import DataTable
from onepage.markup import tag
from onepage.section import Section, card, table
from semantic_kv.experiment.aggregate import AggregateRow, aggregate_rows
from semantic_kv.experiment.study import Study
from semantic_kv.report.charts_policy import MODEL_NAMES
from semantic_kv.report.formats import change, milliseconds, percent


def overview_section(studies: Sequence[Study]) -> Section:
    rows = sorted((row for study in studies for row in aggregate_rows(study)), key=lambda row: not row.lru_wins)
    won = sum(row.lru_wins for row in rows)
    columns = (
        *("study", "model", "capacity", "winner", "LRU", "best", "best saves", "LRU + best admission saves"),
        *("adaptive saves", "published", "LRU hits", "no policy more than"),
    )
    data = DataTable(columns, tuple(_row(row) for row in rows))
    kinds = ["lru" if row.lru_wins else "better" for row in rows]
    sentences = tag("ul", *(tag("li", row.sentence) for row in rows), class_="notes")
    lead = f"LRU wins, or is not beaten beyond a tie, in {won} of {len(rows)} settings; those stand first."
    body = (card("All settings", table(data, text_columns=(1, 3), row_kinds=kinds)), card("In words", sentences))
    return Section("overview", "All studies", lead, body)


def _row(row: AggregateRow) -> tuple[str, ...]:
    return (
        row.experiment,
        MODEL_NAMES[row.model],
        f"{row.capacity:,} {row.unit}",
        row.best_policy_by_avg_ttft,
        milliseconds(row.lru_avg_ttft),
        milliseconds(row.best_avg_ttft),
        change(row.best_improvement, 2),
        change(row.lru_with_admission_improvement, 2),
        change(row.adaptive_relative_ttft_improvement_vs_lru, 2),
        change(row.published_improvement, 2) if row.published_improvement is not None else "none",
        percent(row.lru_share),
        percent(row.clairvoyant_share),
    )
