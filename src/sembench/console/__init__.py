"""Tables on the console: drawn by rich on a terminal where it is installed, plain text everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from sembench.console.table import Table, plain_text
from semblend.registry import Registry

_DRAWERS: Final[Registry[Callable[[Table], None]]] = Registry("table drawer")
_DRAWERS.register("rich", "sembench.console.rich_table:draw")


def show(table: Table) -> None:
    if sys.stdout.isatty():
        try:
            _DRAWERS.get("rich")(table)
            return
        except ModuleNotFoundError:
            pass
    sys.stdout.write(plain_text(table))


__all__ = ["Table", "plain_text", "show"]
