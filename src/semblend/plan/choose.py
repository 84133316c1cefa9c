"""From verified runs to the best plan that the gates allow: context first, then reach.

Where several donors hold the same text, the donor whose context is nearest to the recipient's is taken. What the gates
refuse is composed again from the other runs. Some gates ask for length instead (many short pieces of near donors may be
refused where one long piece is served), so the plan of the fewest pieces is judged as well, and the best is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Decline, Discovery, ReusePlan
from semblend.plan.compose import DONOR, DONOR_START, LENGTH, TARGET_START, compose
from semblend.plan.gates import Gates, Prompt, decide, reused_parts
from semblend.plan.risk import context_risks, in_context, mean_shares

ROUNDS: Final = 3  # compositions by context, each without the runs that the gates refused in those before


class Choice(NamedTuple):
    answer: ReusePlan | Decline
    pieces: NDArray[np.int64]


def choose(
    prompt: Prompt,
    rows: NDArray[np.int64],
    shared_prefix: Sequence[int] | NDArray[np.int64],
    donor_ids: Sequence[str],
    gates: Gates,
    *,
    min_run: int | None = None,
    strict_prefix_boundary: bool = True,
    discoveries: tuple[Discovery, ...] = (),
    truncated: bool = False,
) -> Choice:
    """``rows``: (donor, donor start, target start, length). ``shared_prefix[d]`` counts the tokens of the exact prefix
    that donor ``d`` begins with.
    """
    least = gates.min_run_tokens if min_run is None else min_run
    floor, limit = prompt.exact_prefix_tokens, prompt.tokens - 1

    def judged(pieces: NDArray[np.int64]) -> tuple[Choice, NDArray[np.int64], bool]:
        """The gates' answer, the pieces that they refuse for their context, and whether they serve all of it."""
        risks = context_risks(pieces)
        answer = decide(
            prompt,
            pieces,
            risks,
            donor_ids,
            gates,
            strict_prefix_boundary=strict_prefix_boundary,
            discoveries=discoveries,
            truncated=truncated,
        )
        served = len(answer.runs) if isinstance(answer, ReusePlan) else -1
        if served == len(pieces):
            return Choice(answer, pieces), pieces[:0], True
        reused = reused_parts(pieces, risks, donor_ids, gates)
        refused = [run is not None and not gates.allows(run) for run in reused]
        return Choice(answer, pieces), pieces[refused], False

    runs = in_context(rows, shared_prefix)
    left = runs[_allowed(runs, gates)]
    best: Choice | None = None
    for _ in range(ROUNDS if len(left) else 0):
        choice, refused, is_whole = judged(compose(left, floor, limit, least, boundary=gates.boundary_recompute_tokens))
        if best is None or worth(choice.answer) > worth(best.answer):
            best = choice
        if is_whole:
            return best
        if not len(refused):
            break
        left = left[~_holds(left, refused)]
    choice, _, _ = judged(compose(runs, floor, limit, least))
    return choice if best is None or worth(choice.answer) >= worth(best.answer) else best


def worth(answer: ReusePlan | Decline) -> float:
    """Reused tokens, each counted by the fraction of its context that donor and recipient share."""
    if isinstance(answer, Decline):
        return -1.0
    return sum(run.length * (1.0 - run.risk.mean_share) for run in answer.runs)


def _allowed(runs: NDArray[np.int64], gates: Gates) -> NDArray[np.bool_]:
    """Which runs the gates would let be reused as they are."""
    found: NDArray[np.bool_] = mean_shares(runs) <= gates.max_context_share
    if gates.min_moved_tokens:
        found |= runs[:, LENGTH] >= gates.min_moved_tokens
    return found


def _holds(rows: NDArray[np.int64], pieces: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows one of the pieces was cut from."""
    same = rows[:, None, DONOR] == pieces[None, :, DONOR]
    same &= (rows[:, TARGET_START] - rows[:, DONOR_START])[:, None] == pieces[:, TARGET_START] - pieces[:, DONOR_START]
    same &= rows[:, None, TARGET_START] <= pieces[None, :, TARGET_START]
    same &= (rows[:, TARGET_START] + rows[:, LENGTH])[:, None] > pieces[None, :, TARGET_START]
    found: NDArray[np.bool_] = same.any(axis=1)
    return found
