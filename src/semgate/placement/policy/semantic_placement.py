"""Exact prefix and announced donors in one sum: donors may send a request where no prefix would.

What nobody holds any more goes, queues permitting, where it went before: a fleet whose caches are too small for two
copies of everything must not begin a second one each time the first was evicted. The outcome is ``semantic_placement``
where donors are all there is, or where another replica could have been chosen without them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from semgate.placement.case import Case, Choice, at_slots, best_in_turn
from semgate.placement.evidence import SESSION_HOME, cached_tokens
from semgate.placement.policy.interface import PolicyOptions
from semgate.placement.policy.routed_content import RoutedContent

SHORTEST_RUN_TOKENS: Final = 64  # no connector loads less


class SemanticPlacement(RoutedContent):
    name = "semantic_placement"

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._lag_s = options.announce_lag_s
        self._donor_worth = options.donor_worth
        self._gather_worth = options.gather_worth

    def choose(self, case: Case) -> Choice:
        prompt = case.request.prompt_tokens
        cached = cached_tokens(case, self._lag_s)
        exact_scores = case.price.saved_ms(prompt, cached) - case.wait_ms
        beyond = np.minimum(at_slots(case.request.donor_tokens, case.slots), np.maximum(prompt - cached, 0.0))
        beyond[beyond < SHORTEST_RUN_TOKENS] = 0.0
        donor_saved = case.price.saved_ms(prompt, cached + self._donor_worth * beyond) - case.wait_ms - exact_scores
        held = cached + self._donor_worth * beyond
        seen = self._history.tokens_at(case.request.content, case.slots.tolist()) - held
        seen[seen < SHORTEST_RUN_TOKENS] = 0.0
        scores = exact_scores + donor_saved + self._gather_worth * case.price.saved_ms(prompt, seen)
        place = best_in_turn(scores, case.turn)
        spared = held[place]
        if beyond[place] > 0.0 and (case.cached_blocks[place] == 0.0 or _donors_decided(exact_scores, place)):
            return Choice(
                place, "semantic_placement", scores, f"donors there may save {donor_saved[place]:.0f} ms", spared
            )
        if case.cached_blocks[place] > 0.0:
            return Choice(place, "exact_route", scores, f"{cached[place]:.0f} leading tokens are held there", spared)
        if cached[place] > 0.0:
            return Choice(place, "cold_route", scores, SESSION_HOME, spared)
        if held.any():
            return Choice(place, "cold_route", scores, "queues outweigh all evidence")
        went = "; like content went there" if seen[place] > 0.0 else ""
        return Choice(place, "cold_route", scores, f"no replica holds anything of it{went}")


def _donors_decided(exact_scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], place: int) -> bool:
    """Without donors the chosen replica would not have been the only best one."""
    others = np.delete(exact_scores, place)
    return bool(others.size) and bool(others.max() >= exact_scores[place])
