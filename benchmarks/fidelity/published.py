"""Pictures of ``docs/guides/fidelity.md`` from the tables of that page: ``python -m benchmarks.fidelity.published``.

The rows of the published run are not in the repository; its tables are. So the picture shows what the page states.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.fidelity.figures import FLOOR
from benchmarks.fidelity.picture import Reading, picture

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "guides" / "fidelity.md"
CASES = ("composition", "reorder", "new instruction")
_KL = re.compile(r"(\d\.\d+)(?: \[(\d\.\d+), (\d\.\d+)\])?")
_FLOOR = re.compile(r"\(floor ([\d., ]+)\)")


def readings(page: str, heading: str) -> list[Reading]:
    """The first table after ``heading``, its floor as an arm of its own. Cells without a KL (declined) give none."""
    part = page.partition(heading)[2]
    floors = _FLOOR.search(part)
    if floors is None:
        raise ValueError(f"no floor after '{heading}'")
    found = [Reading(FLOOR, case, float(kl)) for case, kl in zip(CASES, floors[1].split(", "), strict=True)]
    lines = part[part.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    columns, *rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines if "---" not in line]
    for row in rows:
        for case in CASES:
            kl = _KL.match(row[columns.index(case)].replace("*", ""))
            if kl is not None:
                low, high = (None if end is None else float(end) for end in kl.groups()[1:])
                found.append(Reading(row[0].partition(" ")[0].rstrip("*"), case, float(kl[1]), low, high))
    return found


def main() -> int:
    page, pictures = PAGE.read_text(encoding="utf-8"), DOCS / "pictures"
    picture("KL along its answer, 4K", readings(page, "**Along its answer**"), pictures / "fidelity-4k.png")
    given = readings(page, "**Along a given text**")
    picture("KL along a given text, 4K", given, pictures / "fidelity-4k-given-text.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
