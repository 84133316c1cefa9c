"""How much each token of a donor attended, when it was captured, to text before it: kept in parts of its prompt.

A token that leaned on text which a recipient does not have before it will drift most. Which text that is depends on
the plan, so a row of attention per token is kept: one byte per token and part of ``PART_TOKENS``, at most
``MAX_PARTS`` bytes per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Run

SINKS: Final = 4  # the first tokens of any prompt are attended to by everything, whatever they say
PART_TOKENS: Final = 16
MAX_PARTS: Final = 256
# Layers in which leaning tells best how far a token drifts, as parts of the model's depth: 12 to 16 of 30, as measured
# on SmolLM2-135M. See docs/guides/fidelity.md.
FIRST_LAYER: Final = 0.4
LAYERS: Final = 5


def leaning_layers(layers: int) -> range:
    """The layers of a model of this depth whose attention is kept."""
    start = min(round(FIRST_LAYER * layers), max(0, layers - LAYERS))
    return range(start, min(layers, start + LAYERS))


def part_tokens(tokens: int) -> int:
    """The size of the parts of a donor: larger ones for long donors."""
    return PART_TOKENS * max(1, -(-tokens // (PART_TOKENS * MAX_PARTS)))


def pack(attention: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Attention between 0 and 1 as bytes. Roots are kept, because most parts get little attention."""
    packed: NDArray[np.uint8] = np.rint(np.sqrt(np.clip(attention, 0.0, 1.0)) * 255.0).astype(np.uint8)
    return packed


def unpack(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    attention: NDArray[np.float32] = np.square(packed.astype(np.float32) / np.float32(255.0))
    return attention


@dataclass(frozen=True, slots=True, eq=False)
class Leaning:
    """``rows`` [tokens, parts]: the packed attention of each token of a donor to each part of its prompt.

    ``token_ids`` are the donor's, 4 bytes each.
    """

    part_tokens: int
    rows: NDArray[np.uint8]
    token_ids: NDArray[np.uint32]

    def on(self, lost: NDArray[np.bool_], start: int, length: int) -> NDArray[np.float32]:
        """Attention of ``length`` tokens from ``start`` on to positions that are ``lost``. Unknown tokens have 0.

        A part that is lost by half counts by half; the sinks, of which rows know nothing, are as lost as their part.
        """
        size = self.part_tokens
        parts = -(-len(lost) // size)
        counted = np.zeros(parts * size, np.float32)
        counted[: len(lost)] = lost
        if parts:
            counted[:SINKS] = counted[SINKS:size].mean()
        share = counted.reshape(parts, size).mean(axis=1)
        found = np.zeros(length, np.float32)
        rows = self.rows[start : start + length, :parts]
        found[: len(rows)] = unpack(rows) @ share[: rows.shape[1]]
        return found


def kept_before(run: Run, leaning: Leaning, ids: NDArray[np.int64], start: int) -> int:
    """How many tokens right before the run are the donor's in the recipient as well, though they were not loaded.

    They are recomputed at the heads of runs. ``ids`` are the recipient's from position ``start`` on.
    """
    count = min(run.donor_start, run.target_start - start)
    if count <= 0 or run.donor_start > len(leaning.token_ids):
        return 0
    end = run.target_start - start
    differ = np.flatnonzero(ids[end - count : end] != leaning.token_ids[run.donor_start - count : run.donor_start])
    return count - 1 - int(differ[-1]) if len(differ) else count


def lost_context(run: Run, runs: Sequence[Run], kept_prefix: int = 0) -> NDArray[np.bool_]:
    """Which donor positions before the run the recipient does not have before it, given all ``runs`` of its plan.

    The first ones matter to no token's meaning. ``kept_prefix``: so many tokens at the donor's start are known to be
    at the recipient's as well.
    """
    lost = np.ones(run.donor_start, np.bool_)
    lost[: max(SINKS, kept_prefix)] = False
    for other in runs:
        if other.donor_id == run.donor_id and other.target_end <= run.target_start:
            lost[other.donor_start : other.donor_start + other.length] = False
    return lost
