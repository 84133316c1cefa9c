"""Names of the recorded arms: ``<arm>@<fraction>``. Correct blends and two faults, each at every budget."""

from __future__ import annotations

SOUND, ROPE_FAULT, STALE_FAULT = "question", "rope_off_by_one", "stale_donor"
FAULTS = (ROPE_FAULT, STALE_FAULT)
SHARES = (0.0, 0.1, 0.2, 0.4)
