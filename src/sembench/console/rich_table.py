"""An importer of the optional ``rich``, loaded only when standard output is a terminal."""

from __future__ import annotations

import rich.table
from rich.console import Console

from sembench.console.table import Table


def draw(table: Table) -> None:
    drawn = rich.table.Table(title=table.title, title_justify="left")
    for index, column in enumerate(table.columns):
        drawn.add_column(column, justify="left" if index == 0 else "right")
    for row in table.rows:
        drawn.add_row(*row)
    console = Console(highlight=False)
    console.print(drawn)
    for note in table.notes:
        console.print(note, markup=False)
