"""What is right at some pace, on a machine that stands still for a moment now and then: an attempt in, its failure out.

For tests in which somebody who is in time must not be taken for late: a wrong limit fails at every pace, a starved
machine only at the fast ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

FASTER_PACES: Final = (1.0, 4.0)
SLOWEST_PACE: Final = 16.0


def at_some_pace(attempt: Callable[[float], None]) -> None:
    """``attempt`` multiplies all its times by the number it is given."""
    for pace in FASTER_PACES:
        with contextlib.suppress(Exception):
            attempt(pace)
            return
    attempt(SLOWEST_PACE)
