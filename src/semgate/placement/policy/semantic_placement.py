"""Exact prefix and announced donors in one score: donors may attract a request to a replica that lacks its prefix.

Content that no replica holds any more goes back, queues permitting, to where it went before: a fleet whose caches are
too small for two copies of everything must not start a second copy each time the first is evicted. The route is
``semantic_placement`` if donors are the only evidence, or if another replica could have been chosen without them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from semgate.placement.case import Case, Choice, at_slots, best_in_turn
from semgate.placement.evidence import SESSION_HOME, cached_tokens
from semgate.placement.policy.interface import Needs, PolicyOptions
from semgate.placement.policy.routed_content import RoutedContent

SHORTEST_RUN_TOKENS: Final = 64  # connectors load no shorter run


class SemanticPlacement(RoutedContent):
    name = "semantic_placement"
    needs = Needs(tokens="required")

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
        chosen = best_in_turn(scores, case.turn)
        reused = held[chosen]
        if beyond[chosen] > 0.0 and (case.cached_blocks[chosen] == 0.0 or _donors_decided(exact_scores, chosen)):
            return Choice(chosen, "semantic_placement", scores, f"donors may save {donor_saved[chosen]:.0f} ms", reused)
        if case.cached_blocks[chosen] > 0.0:
            return Choice(chosen, "exact_route", scores, f"{cached[chosen]:.0f} leading tokens cached there", reused)
        if cached[chosen] > 0.0:
            return Choice(chosen, "cold_route", scores, SESSION_HOME, reused)
        if held.any():
            return Choice(chosen, "cold_route", scores, "queues outweigh all evidence")
        went = "; similar content was routed there before" if seen[chosen] > 0.0 else ""
        return Choice(chosen, "cold_route", scores, f"no replica holds any of it{went}")


def _donors_decided(exact_scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], chosen: int) -> bool:
    """Without donors, another replica would have scored at least as high."""
    others = np.delete(exact_scores, chosen)
    return bool(others.size) and bool(others.max() >= exact_scores[chosen])
