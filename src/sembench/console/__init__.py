"""Tables on the console: drawn by rich on a terminal if it is installed, otherwise as plain text."""

from __future__ import annotations

import shutil
import sys
from typing import Final

from sembase.registry import load_target
from sembase.streams import write_out
from sembench.console.table import Table, narrow_text, plain_text, widths_of

_PLAIN_GAP: Final = 2
_DRAWN_GAP: Final = 3


def show(table: Table) -> None:
    """All columns for a file or a pipe; only the most important ones on a terminal that is too narrow."""
    if not sys.stdout.isatty():
        write_out(plain_text(table))
        return
    width = shutil.get_terminal_size().columns
    needed = sum(widths_of(table))
    try:
        draw = load_target("sembench.console.rich_table:draw")
    except ModuleNotFoundError:
        needed += _PLAIN_GAP * (len(table.columns) - 1)
        write_out(plain_text(table) if needed <= width else narrow_text(table, width))
        return
    needed += _DRAWN_GAP * len(table.columns) + 1
    if needed > width:
        write_out(narrow_text(table, width))
        return
    try:
        draw(table)
    except BrokenPipeError:
        write_out("")


__all__ = ["Table", "narrow_text", "plain_text", "show"]
