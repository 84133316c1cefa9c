"""Names of the report's colours, and their values in pictures. On the page, ``page.css`` defines them per theme."""

from __future__ import annotations

from typing import Final, Literal

Tone = Literal["cold", "reuse", "miss", "negative", "unknown", "accent", "bad", "muted", "ink"]

COLOURS: Final[dict[str, str]] = {
    "cold": "#64748b",
    "reuse": "#0f7d8c",
    "miss": "#c2700a",
    "negative": "#8b4fb8",
    "unknown": "#7b8794",
    "accent": "#1f4fc4",
    "bad": "#be2435",
}
