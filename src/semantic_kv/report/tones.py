"""Names of the report's colours, which its ``page.css`` defines per theme."""

from __future__ import annotations

from typing import Final, Literal

Tone = Literal["baseline", "bound", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "muted"]

CYCLE: Final[tuple[Tone, ...]] = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")
