"""A table as values, and its plain rendering: first column left, figures right, a dash for what was not measured."""

from __future__ import annotations

from dataclasses import dataclass

NOT_MEASURED = "-"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def plain_text(table: Table) -> str:
    lines = [table.columns, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    drawn = ["  ".join(_cell(line[i], widths[i], i) for i in range(len(widths))).rstrip() for line in lines]
    drawn.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([table.title, *drawn, *table.notes]) + "\n\n"


def _cell(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def percent(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    if 0 < value < 0.0005:
        return "< 0.1 %"  # what should be zero and is not must not read like zero
    # Adding 0.0 after rounding turns -0.0, which reads like a loss, into 0.0.
    return f"{round(100 * value, 1) + 0.0:.1f} %"


def number(value: float | None, digits: int = 0) -> str:
    return NOT_MEASURED if value is None else f"{value:,.{digits}f}"
