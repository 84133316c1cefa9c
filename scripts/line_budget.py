"""The lines of Python a package may have. ``python -m scripts.line_budget --lower`` lowers budgets to what is there.

Budgets are raised by hand only, in the commit that gives the reason. ``is_tight`` in the table says whether a package
must also stay near its budget, so that what was removed cannot come back unnoticed.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = ROOT / "tests" / "contract" / "line_budget.toml"
SLACK: Final = 0.02
LOWER: Final = "python -m scripts.line_budget --lower"
HEAD: Final = f"""\
# The most lines of Python of each folder. To lower them to what is there: {LOWER}
# is_tight: a folder more than {SLACK:.0%} below its budget fails as well.
"""


@dataclass(frozen=True, slots=True)
class Budget:
    is_tight: bool
    lines: dict[str, int]


def read_budget(table: Path = TABLE) -> Budget:
    found = tomllib.loads(table.read_text(encoding="utf-8"))
    return Budget(found["is_tight"], found["lines"])


def lines_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py"))


def problems(budget: Budget, found: dict[str, int]) -> list[str]:
    """A sentence for each folder outside its budget."""
    sentences = []
    for folder, most in budget.lines.items():
        lines = found[folder]
        if lines > most:
            sentences.append(f"{folder} has {lines:,} lines, {lines - most:,} more than its budget: remove something")
        elif budget.is_tight and lines < (1 - SLACK) * most:
            sentences.append(f"{folder} has {lines:,} lines, its budget is {most:,}; run: {LOWER}")
    return sentences


def lowered(budget: Budget, found: dict[str, int]) -> Budget:
    return Budget(budget.is_tight, {folder: min(most, found[folder]) for folder, most in budget.lines.items()})


def write_budget(budget: Budget, table: Path = TABLE) -> None:
    rows = "".join(f'"{folder}" = {most}\n' for folder, most in budget.lines.items())
    table.write_text(f"{HEAD}is_tight = {str(budget.is_tight).lower()}\n\n[lines]\n{rows}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="lower each budget to the lines that are there")
    options = parser.parse_args()
    budget = read_budget()
    found = {folder: lines_in(ROOT / folder) for folder in budget.lines}
    if options.lower:
        budget = lowered(budget, found)
        write_budget(budget)
    for folder, most in budget.lines.items():
        print(f"{folder:20} {found[folder]:>7,} of {most:>7,}")
    return 1 if problems(budget, found) else 0


if __name__ == "__main__":
    sys.exit(main())
