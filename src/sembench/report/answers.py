"""Section: what reuse did to the answers, per class, beside the floor of two cold runs."""

from __future__ import annotations

from sembase.onepage.chart import DataTable
from sembase.onepage.formats import NOT_MEASURED, plural
from sembase.onepage.markup import Safe
from sembase.onepage.section import Section, card, missing, table
from sembench.console.answers import CLASS, FLIPS, SCORES, answers_table
from sembench.console.table import NOT_MEASURED as DASH
from sembench.console.table import Table
from sembench.flips import ALL, answer_classes
from sembench.report.subject import Subject

_TITLE = "Answers by class"


def section(subject: Subject) -> Section:
    size = subject.result["config"].get("block_size") if isinstance(subject.result["config"], dict) else None
    seed = subject.result["run"].get("seed")
    classes = answer_classes(
        subject.rows,
        subject.floor,
        block_size=size if isinstance(size, int) else None,
        seed=seed if isinstance(seed, int) else 0,
    )
    if not classes:
        return Section("answers", _TITLE, "", (missing(_TITLE, "No clean pair has marked answers."),))
    shown = answers_table(classes)
    counted = [each for each in classes if each.task != ALL and not each.is_control]
    answerable, flips = sum(each.answerable for each in counted), sum(each.flips for each in counted)
    beyond = sum(each.flips_beyond_floor for each in counted)
    lead = f"{plural(flips, 'flip')} of {plural(answerable, 'answerable pair')}, {beyond:,} of them beyond the floor."
    flipped = card("Flips and the floor", _part(shown, FLIPS), *shown.notes)
    return Section("answers", _TITLE, lead, (flipped, card("Scores", _part(shown, SCORES))))


def _part(shown: Table, columns: tuple[str, ...]) -> Safe:
    """Some columns of the table: all of them are wider than a page."""
    names = (*CLASS, *columns)
    places = [shown.columns.index(name) for name in names]
    rows = tuple(tuple(NOT_MEASURED if row[i] == DASH else row[i] for i in places) for row in shown.rows)
    return table(DataTable(names, rows), text_columns=range(len(CLASS)), kind="one-line")
