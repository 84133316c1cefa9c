"""Studies in, one HTML page out: a chapter per study and an overview of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from semantic_kv.experiment.aggregate import AggregateRow, aggregate_rows
from semantic_kv.experiment.study import Study
from semantic_kv.experiment.verdict import MODELLED, Verdict, verdict_of
from semantic_kv.report import sections
from semantic_kv.report.charts_policy import MODEL_NAMES
from semantic_kv.report.formats import change, milliseconds, percent
from sembase.onepage.chart import Chart, DataTable
from sembase.onepage.formats import plural
from sembase.onepage.markup import Safe, tag
from sembase.onepage.page import document, framed, style_of
from sembase.onepage.section import Section, card, chip, table
from semblend import __version__


def overview_section(studies: Sequence[Study]) -> Section:
    rows = sorted((row for study in studies for row in aggregate_rows(study)), key=lambda row: not row.lru_wins)
    won = sum(row.lru_wins for row in rows)
    columns = (
        *("study", "model", "capacity", "winner", "LRU", "best", "best saves", "LRU + best admission saves"),
        *("adaptive saves", "published", "LRU hits", "bound on hits"),
    )
    data = DataTable(columns, tuple(_row(row) for row in rows))
    kinds = ["lru" if row.lru_wins else "better" for row in rows]
    sentences = tag("ul", *(tag("li", row.sentence) for row in rows), class_="notes")
    lead = f"LRU wins or ties in {won} of {len(rows)} settings; these come first."
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


_FOOTER: Final = f"{MODELLED} Intervals are 95 %, by seeded bootstrap. “Not measured” is not zero."


def page_html(studies: Sequence[Study], title: str, facts: dict[str, str], observed: Chart | None = None) -> str:
    """``observed`` is the chart of observed against modelled TTFT, for a page with one study."""
    several = len(studies) > 1
    chapters = [
        _chapter(study, f"s{at}-" if several else "", several, facts, observed) for at, study in enumerate(studies)
    ]
    overview = [overview_section(studies)] if several else []
    links = [*(section.link("") for section in overview), *chain.from_iterable(chapter[0] for chapter in chapters)]
    main = [*(section.render("") for section in overview), *(chapter[1] for chapter in chapters)]
    body = framed("semantic_kv report", title, [links], main, _FOOTER)
    return document(title, body, style_of("semantic_kv.report"), f"semantic_kv {__version__}")


def _chapter(
    study: Study, prefix: str, several: bool, facts: dict[str, str], observed: Chart | None
) -> tuple[list[Safe], Safe]:
    verdict = verdict_of(study)
    made = [section for section in _sections(study, verdict, prefix, facts) if section is not None]
    if observed is not None:
        made.insert(1, sections.observed_section(observed, prefix))
    heading = tag("h1", study.config.experiment, class_="chapter", id=f"{prefix}top") if several else None
    article = tag("article", heading, _facts(study), *(section.render(prefix) for section in made))
    if several:
        return [tag("a", study.config.experiment, href=f"#{prefix}top")], article
    return [section.link(prefix) for section in made], article


def _sections(study: Study, verdict: Verdict, prefix: str, facts: dict[str, str]) -> Sequence[Section | None]:
    return (
        sections.verdict_section(study, verdict),
        sections.policies_section(study, prefix),
        sections.ablation_section(study),
        sections.curve_section(study, prefix),
        sections.inside_section(study, prefix),
        sections.tenants_section(study),
        sections.provenance_section(study, facts),
    )


def _facts(study: Study) -> Safe:
    first = study.traces[0]
    chips = [
        chip("TTFT modelled", "warn"),
        tag("span", plural(first.requests, "request")),
        tag("span", plural(first.references, "block reference")),
        tag("span", plural(len(study.config.seeds), "seed")),
        tag("span", plural(len(study.config.choices()), "policy", "policies")),
    ]
    return tag("p", *chips, class_="facts")
