"""Section: what reuse did to the answers, per class, beside the floor of two cold runs."""

from __future__ import annotations

from onepage.chart import DataTable
from onepage.formats import NOT_MEASURED, plural
from onepage.section import Section, card, missing, table
from sembench.console.answers import answers_table
from sembench.console.table import NOT_MEASURED as DASH
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
    rows = tuple(tuple(NOT_MEASURED if cell == DASH else cell for cell in row) for row in shown.rows)
    counted = [each for each in classes if each.task != ALL and not each.is_control]
    answerable, flips = sum(each.answerable for each in counted), sum(each.flips for each in counted)
    beyond = sum(each.flips_beyond_floor for each in counted)
    lead = f"{plural(flips, 'flip')} of {plural(answerable, 'answerable pair')}, {beyond:,} of them beyond the floor."
    body = card(shown.title, table(DataTable(shown.columns, rows), text_columns=(0, 1), kind="one-line"), *shown.notes)
    return Section("answers", _TITLE, lead, (body,))
