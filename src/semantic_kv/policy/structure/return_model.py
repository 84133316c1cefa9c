"""When do blocks of a class come back? Learnt online from every block asked for, resident or not; no look ahead.

A class is refined in five steps, each shrunk towards the one above by `strength` observations: all blocks; how the
request that last used the block ended, or that its conversation has left the block behind (superseded); (label, uses so
far); the shape of that request (its last block or not, how much of it was known before and how much new, how often the
known part was continued before); how long the known part had waited. For each age the model
counts the blocks that waited so long and those that then came back. Fixed memory: 10 MB of tables and 5 MB of recent
touches.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.structure.ages import AGE_STARTS, AGES, age_bucket
from sembase.compiled import kernel_part
from sembase.labels import LABELS

USES: Final = 10
# How the last request of a block ended: its finish reason + 1, or one of these two.
ENDINGS: Final = 7
SUPERSEDED: Final = 5  # the conversation continued without the block and kept at least half of its prompt
SUPERSEDED_MOST: Final = 6  # the same, but it kept less
COARSE: Final = 1 + ENDINGS  # first row of (ending, label, uses); row 0 is all blocks, then one row an ending
MIDDLE: Final = COARSE + ENDINGS * USES * len(LABELS)
FINE: Final = MIDDLE + 4096
ROWS: Final = FINE + 8192
TOUCHES: Final = 1 << 20
REQUESTS: Final = 1 << 17  # more than the oldest age
_WIDTHS: Final = np.diff(np.append(AGE_STARTS, 2 * AGE_STARTS[-1])).astype(np.float64)


class Shape(NamedTuple):
    """One request as the model sees it, in blocks and requests."""

    known: int
    new: int
    branches: int  # earlier requests that continued its known part differently
    waited: int  # since the known part was last used; 0 where nothing was known
    ending: int  # how the request ended: its finish reason + 1


class ReturnModel(NamedTuple):
    waited: NDArray[np.float64]  # [row, age]: blocks that reached the age without coming back
    returned: NDArray[np.float64]  # [row, age]: of those, came back before the next age
    density: NDArray[np.float64]  # [row, age]: best achievable returns a request of waiting, from the age on
    above: NDArray[np.int32]  # the coarser row
    is_used: NDArray[np.uint8]
    touched: NDArray[np.int32]  # ring of nodes
    began: NDArray[np.int64]  # ring by request: where its touches begin
    ends: NDArray[np.int64]  # [touches so far]
    blind: NDArray[np.int64]  # by age: requests up to this one were forgotten before they reached it


def make_return_model() -> ReturnModel:
    return ReturnModel(
        np.zeros((ROWS, AGES)),
        np.zeros((ROWS, AGES)),
        np.zeros((ROWS, AGES + 1)),
        np.zeros(ROWS, np.int32),
        np.zeros(ROWS, np.uint8),
        np.zeros(TOUCHES, np.int32),
        np.zeros(REQUESTS + 1, np.int64),
        np.zeros(1, np.int64),
        np.full(AGES, -1, np.int64),
    )


@kernel_part
def octave(number: int, most: int) -> int:
    """floor(log2(number + 1)), at most `most`."""
    found = 0
    rest = number + 1
    while rest > 1 and found < most:
        rest >>= 1
        found += 1
    return found


@kernel_part
def coarse_row(ending: int, label: int, uses: int) -> int:
    """Of a block asked for `uses` times before."""
    return COARSE + (ending * len(LABELS) + label) * USES + (uses if uses < 4 else min(9, 3 + octave(uses // 4, 6)))


@kernel_part
def enter_coarse_row(model: ReturnModel, ending: int, label: int, uses: int) -> int:
    """The same row, entered with the rows above it."""
    coarse = coarse_row(ending, label, uses)
    model.above[coarse] = 1 + ending
    model.is_used[coarse] = 1
    model.is_used[1 + ending] = 1
    return coarse


@kernel_part
def _spread(key: int, size: int) -> int:
    return int(((key * 2654435761) & 0xFFFFFFFF) * size >> 32)


@kernel_part
def fine_row(model: ReturnModel, label: int, uses: int, is_last: int, shape: Shape) -> int:
    """The row of a block's class, entered with the rows above it. Rows are shared where two classes collide."""
    coarse = enter_coarse_row(model, shape.ending, label, uses)
    key = ((coarse * 2 + is_last) * 5 + octave(shape.branches, 4)) * 144
    key += octave(shape.known, 11) * 12 + octave(shape.new, 11)
    middle = MIDDLE + _spread(key, FINE - MIDDLE)
    fine = FINE + _spread(key * 7 + octave(shape.waited // 32, 6), ROWS - FINE)
    model.above[middle] = coarse
    model.above[fine] = middle
    model.is_used[middle] = 1
    model.is_used[fine] = 1
    return fine


@kernel_part
def note_touch(model: ReturnModel, node: int) -> None:
    model.touched[model.ends[0] % len(model.touched)] = node
    model.ends[0] += 1


@kernel_part
def note_return(model: ReturnModel, row: int, last: int, now: int) -> None:
    age = age_bucket(now - last)
    if last <= model.blind[age]:
        return
    while row > 0:
        model.returned[row, age] += 1.0
        row = int(model.above[row])
    model.returned[0, age] += 1.0


@kernel_part
def close_request(model: ReturnModel, last: NDArray[np.int32], row: NDArray[np.int32], request: int) -> None:
    """Count every earlier block that reaches the start of an age without having come back."""
    requests = len(model.began) - 1
    model.began[(request + 1) % requests] = model.ends[0]
    for age in range(len(AGE_STARTS)):
        then = request + 1 - AGE_STARTS[age]
        if then < 0:
            break
        start = model.began[then % requests]
        stop = model.began[(then + 1) % requests]
        if start < model.ends[0] - len(model.touched):
            model.blind[age] = then
            continue
        for at in range(start, stop):
            node = model.touched[at % len(model.touched)]
            if last[node] == then:
                above = int(row[node])
                while above > 0:
                    model.waited[above, age] += 1.0
                    above = int(model.above[above])
                model.waited[0, age] += 1.0


@kernel_part
def refresh_densities(model: ReturnModel, rate: NDArray[np.float64], strength: float, fade: float) -> None:
    """From counts to densities, coarser rows first (they have lower numbers); then old counts fade."""
    for row in range(model.waited.shape[0]):
        if row > 0 and model.is_used[row] == 0:
            continue
        for age in range(rate.shape[1]):
            prior = rate[model.above[row], age] if row > 0 else 0.0
            weight = strength if row > 0 else 5.0
            chance = (model.returned[row, age] + weight * prior) / (model.waited[row, age] + weight)
            rate[row, age] = min(0.999, chance)
            model.returned[row, age] *= fade
            model.waited[row, age] *= fade
        _best_densities(rate[row], model.density[row])


@kernel_part
def _best_densities(rate: NDArray[np.float64], density: NDArray[np.float64]) -> None:
    """Per age, the best stopping point (a Gittins index): expected returns over expected waiting until then."""
    for age in range(len(rate)):
        waiting = 1.0
        returns = 0.0
        spent = 0.0
        best = 0.0
        for until in range(age, len(rate)):
            returns += waiting * rate[until]
            spent += waiting * _WIDTHS[until] * (1.0 - 0.5 * rate[until])
            waiting *= 1.0 - rate[until]
            best = max(best, returns / spent)
        density[age] = best
    density[len(rate)] = density[len(rate) - 1]


@kernel_part
def density_at(model: ReturnModel, row: int, waited: int) -> float:
    """Between the starts of two ages the density is read off the line between them."""
    age = age_bucket(waited)
    part = min(1.0, max(0.0, (waited - AGE_STARTS[age]) / _WIDTHS[age]))
    return float(model.density[row, age] * (1.0 - part) + model.density[row, age + 1] * part)
