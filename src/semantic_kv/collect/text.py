"""Text that the plan cuts into requests, enough to vary token counts; its meaning does not affect latency."""

from __future__ import annotations

from typing import Final

_SUBJECTS: Final = (
    "ferry",
    "archive",
    "signal",
    "licence",
    "garden",
    "ledger",
    "harbour",
    "engine",
    "letter",
    "bridge",
)
_DEEDS: Final = ("carries", "records", "measures", "repairs", "delays", "announces", "replaces", "describes", "returns")
_OBJECTS: Final = (
    "passengers",
    "tickets",
    "weather",
    "reports",
    "cables",
    "payments",
    "timetables",
    "pictures",
    "maps",
)
BUILT_IN_TEXT: Final = " ".join(
    f"The {subject} {deed} {thing} number {17 * i + 5 * j + k}."
    for i, subject in enumerate(_SUBJECTS)
    for j, deed in enumerate(_DEEDS)
    for k, thing in enumerate(_OBJECTS)
)
