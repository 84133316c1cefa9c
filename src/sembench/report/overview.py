"""Section: several results side by side, one line each."""

from __future__ import annotations

from collections.abc import Sequence

from sembase.onepage.chart import DataTable
from sembase.onepage.formats import NOT_MEASURED
from sembase.onepage.section import Section, card, table
from sembench.report.formats import percent, ratio
from sembench.report.headline import blended, reused_only
from sembench.report.subject import Subject
from sembench.report.verdict import ruling_of


def section(subjects: Sequence[Subject]) -> Section:
    digests = {str(subject.result["run"].get("manifest_digest")) for subject in subjects}
    lead = (
        "All results are from the same manifest."
        if len(digests) == 1
        else f"These results are from {len(digests)} different manifests, so items cannot be compared one by one."
    )
    columns = (
        "result",
        "verdict",
        "evidence",
        "requests",
        "blended [95 %]",
        "reused only [95 %]",
        "confirmed",
        "quality kept",
        "negatives",
    )
    whole = table(
        DataTable(columns, tuple(_row(subject) for subject in subjects)), text_columns=(0, 1, 2), kind="one-line"
    )
    return Section("overview", "Side by side", lead, (card("Results", whole),))


def _row(subject: Subject) -> tuple[str, ...]:
    if subject.integrity:
        named = (subject.name, ruling_of(subject).word, subject.evidence.replace("_", " "), f"{len(subject.rows):,}")
        return *named, *(["not used"] * 5)
    speed, only = blended(subject), reused_only(subject)
    figures = subject.aggregate
    return (
        subject.name,
        ruling_of(subject).word,
        subject.evidence.replace("_", " "),
        f"{len(subject.rows):,}",
        NOT_MEASURED if speed is None else f"{speed.shown(ratio)}, n = {speed.n:,}",
        NOT_MEASURED if only is None else f"{only.shown(ratio)}, n = {only.n:,}",
        percent(figures.get("backend_confirmed_block_rate")),
        percent(figures.get("quality_pass_rate")),
        percent(figures.get("negative_control_backend_confirmed_rate")),
    )
