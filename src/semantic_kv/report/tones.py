"""What colours mean in this report, and which they are in a picture; on the page ``page.css`` gives them, by theme."""

from __future__ import annotations

from typing import Final, Literal

Tone = Literal["baseline", "bound", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "muted"]

CYCLE: Final[tuple[Tone, ...]] = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")
COLOURS: Final[dict[str, str]] = {
    "baseline": "#64748b",
    "bound": "#be2435",
    "c1": "#1f4fc4",
    "c2": "#0f7d8c",
    "c3": "#c2700a",
    "c4": "#8b4fb8",
    "c5": "#137a46",
    "c6": "#7f92b5",
    "c7": "#b8347c",
    "c8": "#6b5b45",
}
