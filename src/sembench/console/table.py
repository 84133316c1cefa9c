"""A table and its plain-text rendering: first column left-aligned, figures right-aligned, a dash if not measured."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

NOT_MEASURED = "-"
_MIN_FIRST_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    """The most important columns, for a terminal that is too narrow for all of them; empty means all."""


def widths_of(table: Table) -> list[int]:
    return [max(len(line[i]) for line in (table.columns, *table.rows)) for i in range(len(table.columns))]


def plain_text(table: Table) -> str:
    lines = [table.columns, *table.rows]
    widths = widths_of(table)
    drawn = ["  ".join(_cell(line[i], widths[i], i) for i in range(len(widths))).rstrip() for line in lines]
    drawn.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([table.title, *drawn, *table.notes]) + "\n\n"


def narrow_text(table: Table, width: int) -> str:
    """The short columns with multi-line headings, and wrapped notes. The first column is cut if necessary."""
    chosen = [table.columns.index(name) for name in table.short or table.columns]
    headings = [table.columns[i].split() for i in chosen]
    height = max(len(words) for words in headings)
    stacked = [[""] * (height - len(words)) + words for words in headings]
    lines = [[words[level] for words in stacked] for level in range(height)]
    rows = [[row[i] for i in chosen] for row in table.rows]
    widths = [max(len(line[i]) for line in (*lines, *rows)) for i in range(len(chosen))]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= width else " "
    widths[0] = max(_MIN_FIRST_WIDTH, min(widths[0], width - sum(widths[1:]) - len(gap) * (len(widths) - 1)))
    drawn = [
        gap.join(_cell(_cut(line[i], widths[i]), widths[i], i) for i in range(len(widths))).rstrip()
        for line in (*lines, *rows)
    ]
    drawn.insert(height, gap.join("-" * each for each in widths))
    title, *notes = (textwrap.fill(text, width) for text in (table.title, *table.notes))
    return "\n".join([title, *drawn, *notes]) + "\n\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}~"


def _cell(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def percent(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    if 0 < value < 0.0005:
        return "< 0.1 %"  # a small value must not read like zero
    # Adding 0.0 after rounding turns -0.0 into 0.0.
    return f"{round(100 * value, 1) + 0.0:.1f} %"


def number(value: float | None, digits: int = 0) -> str:
    return NOT_MEASURED if value is None else f"{value:,.{digits}f}"
