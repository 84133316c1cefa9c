"""Hashes of how a prompt begins, at growing lengths: two prompts that agree up to a length share the head up to there.

A hash only orders donors that all hold the recipient's text; it permits nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part

LENGTHS: Final = tuple(int(64 * 2 ** (step / 2)) for step in range(15))  # 64 to 8,192 tokens, a factor of 1.4 apart
COUNT: Final = len(LENGTHS)
TOO_SHORT: Final = -1
WEIGHTS: Final = np.random.default_rng(1).integers(1, 1 << 31, LENGTHS[-1])
_MASK: Final = (1 << 62) - 1


@kernel_part
def head_hashes(tokens: NDArray[np.uint32], weights: NDArray[np.int64]) -> NDArray[np.int32]:
    """One hash of 31 bits for each of ``LENGTHS``; ``TOO_SHORT`` where the prompt has fewer tokens."""
    hashes = np.full(COUNT, TOO_SHORT, np.int32)
    value = 0
    begin = 0
    for step in range(COUNT):
        if len(tokens) < LENGTHS[step]:
            break
        for i in range(begin, LENGTHS[step]):  # token ids are below 2**31, so no sum reaches 2**63
            value = (value + (int(tokens[i]) + 1) * int(weights[i])) & _MASK
        begin = LENGTHS[step]
        hashes[step] = value >> 31
    return hashes
