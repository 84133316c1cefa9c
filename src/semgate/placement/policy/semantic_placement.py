"""Exact prefix and announced donors in one score: donors may attract a request to a replica that lacks its prefix.

Where replicas share a store of donors, fetching one is a third choice beside going where it is held and computing.
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
from semgate.placement.view import BySlot, Floats

SHORTEST_RUN_TOKENS: Final = 64  # connectors load no shorter run
MIN_FETCH_TOKENS: Final = 128  # that a fetch must add to the own donors' tokens, as connectors require


class SemanticPlacement(RoutedContent):
    name = "semantic_placement"
    needs = Needs(tokens="required")

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._lag_s = options.announce_lag_s
        self._donor_worth = options.donor_worth
        self._gather_worth = options.gather_worth
        self._fetch_ms = options.fetch_ms
        self._fetch_ms_per_token = options.fetch_ms_per_token

    def choose(self, case: Case) -> Choice:
        prompt = case.request.prompt_tokens
        cached = cached_tokens(case, self._lag_s)
        exact_scores = case.price.saved_ms(prompt, cached) - case.wait_ms
        routed = self._history.tokens_at(case.request.content, case.slots.tolist())
        beyond = _tokens_beyond(case, case.request.donor_tokens, cached)
        held = cached + self._donor_worth * beyond
        donor_saved, scores = self._scored(case, exact_scores, held, routed)
        if self._fetch_ms_per_token is not None and case.request.fetchable_tokens is not None:
            fetchable = _tokens_beyond(case, case.request.fetchable_tokens, cached)
            fetched = cached + self._donor_worth * fetchable
            cost_ms = self._fetch_ms + self._fetch_ms_per_token * fetchable
            fetch_saved, fetch_scores = self._scored(case, exact_scores, fetched, routed, cost_ms)
            is_better = (fetchable >= beyond + MIN_FETCH_TOKENS) & (fetch_scores > scores)
            scores, held = np.where(is_better, fetch_scores, scores), np.where(is_better, fetched, held)
            chosen = best_in_turn(scores, case.turn)
            if is_better[chosen]:
                reason = f"donors fetched from the fleet's store may save {fetch_saved[chosen]:.0f} ms"
                return Choice(chosen, "semantic_placement", scores, reason, held[chosen])
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
        went = "; similar content was routed there before" if routed[chosen] >= SHORTEST_RUN_TOKENS else ""
        return Choice(chosen, "cold_route", scores, f"no replica holds any of it{went}")

    def _scored(
        self, case: Case, exact_scores: Floats, held: Floats, routed: Floats, cost_ms: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """What candidates that reuse ``held`` tokens save beyond their exact prefix, and their scores."""
        prompt = case.request.prompt_tokens
        saved = case.price.saved_ms(prompt, held) - cost_ms - case.wait_ms - exact_scores
        seen = _long_enough(routed - held)
        return saved, exact_scores + saved + self._gather_worth * case.price.saved_ms(prompt, seen)


def _tokens_beyond(case: Case, by_slot: BySlot | None, cached: Floats) -> Floats:
    """Of donors, at each candidate: what its cached tokens leave."""
    rest = np.maximum(case.request.prompt_tokens - cached, 0.0)
    return _long_enough(np.minimum(at_slots(by_slot, case.slots), rest))


def _long_enough(tokens: Floats) -> Floats:
    tokens[tokens < SHORTEST_RUN_TOKENS] = 0.0
    return tokens


def _donors_decided(exact_scores: Floats, chosen: int) -> bool:
    """Without donors, another replica would have scored at least as high."""
    others = np.delete(exact_scores, chosen)
    return bool(others.size) and bool(others.max() >= exact_scores[chosen])
