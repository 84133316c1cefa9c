"""Names of the report's colours, which its ``page.css`` defines per theme."""

from __future__ import annotations

from typing import Literal

Tone = Literal["cold", "reuse", "miss", "negative", "unknown", "accent", "bad", "muted", "ink"]
