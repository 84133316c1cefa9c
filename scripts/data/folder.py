"""Which folder the traces and texts of tests and benchmarks are read from.

``data/`` in the clone (``make data``) or ``../shared/data`` beside it. Where neither exists, benchmarks read the
made-up files that ``python -m scripts.data --or-made-up`` writes; tests never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACES: Final = (ROOT / "data", ROOT.parent / "shared" / "data")
MADE_UP: Final = ROOT / ".cache" / "made-up-data"
BANNER: Final = """\
+------------------------------------------------------------------------------+
|  MADE-UP DATA                                                                |
|  The real traces and texts are not on this machine. This run reads generated |
|  files of the same form: it shows that the command works. Its figures say    |
|  nothing about real traffic. The real files: make data                       |
+------------------------------------------------------------------------------+"""


def find_data(places: Sequence[Path] = PLACES) -> Path:
    """The first place that exists, else the first: the one ``make data`` fills."""
    return next((place for place in places if (place / "text").is_dir()), places[0])


def is_made_up(folder: Path) -> bool:
    return folder == MADE_UP


REAL_DATA: Final = find_data()
DATA: Final = find_data((*PLACES, MADE_UP))
TEXTS: Final = DATA / "text"
TRACES: Final = DATA / "traces"
