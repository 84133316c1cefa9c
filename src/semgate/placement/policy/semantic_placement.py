"""Exact prefix and announced donors in one sum: donors may send a request where no prefix would.

The outcome is ``semantic_placement`` only where donors decided: without them another replica could have been chosen.
"""

from __future__ import annotations

import numpy as np

from semgate.placement.case import Case, Choice, at_slots, best_in_turn
from semgate.placement.evidence import SESSION_HOME, cached_tokens
from semgate.placement.policy.interface import PolicyOptions, Stateless


class SemanticPlacement(Stateless):
    name = "semantic_placement"

    def __init__(self, options: PolicyOptions) -> None:
        self._lag_s = options.announce_lag_s
        self._donor_worth = options.donor_worth

    def choose(self, case: Case) -> Choice:
        prompt = case.request.prompt_tokens
        cached = cached_tokens(case, self._lag_s)
        exact_scores = case.price.saved_ms(prompt, cached) - case.wait_ms
        beyond = np.minimum(at_slots(case.request.donor_tokens, case.slots), np.maximum(prompt - cached, 0.0))
        donor_saved = case.price.saved_ms(prompt, cached + self._donor_worth * beyond) - case.wait_ms - exact_scores
        scores = exact_scores + donor_saved
        place = best_in_turn(scores, case.turn)
        spared = cached[place] + self._donor_worth * beyond[place]
        if donor_saved[place] > 0.0 and _donors_decided(exact_scores, place):
            return Choice(
                place, "semantic_placement", scores, f"donors there may save {donor_saved[place]:.0f} ms", spared
            )
        if case.cached_blocks[place] > 0.0:
            return Choice(place, "exact_route", scores, f"{cached[place]:.0f} leading tokens are held there", spared)
        if cached[place] > 0.0:
            return Choice(place, "cold_route", scores, SESSION_HOME, spared)
        if beyond[place] > 0.0:
            return Choice(place, "cold_route", scores, "the least loaded, and donors are there too", spared)
        reason = "queues outweigh all evidence" if (cached + beyond).any() else "no replica holds anything of it"
        return Choice(place, "cold_route", scores, reason)


def _donors_decided(exact_scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], place: int) -> bool:
    """Without donors the chosen replica would not have been the only best one."""
    others = np.delete(exact_scores, place)
    return bool(others.size) and bool(others.max() >= exact_scores[place])
