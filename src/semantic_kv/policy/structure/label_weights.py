"""The label weights of the original's semantic policies, in the order of `LABELS`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.labels import LABELS

_WEIGHTS: Final = {
    "system": 2.4,
    "template": 2.0,
    "code": 1.6,
    "retrieved_context": 1.4,
    "tool_output": 1.1,
    "assistant": 1.0,
    "other": 0.8,
    "user": 0.7,
}
PUBLISHED_WEIGHTS: Final[NDArray[np.float64]] = np.array([_WEIGHTS[label] for label in LABELS])
