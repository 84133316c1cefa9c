"""The replica where the announced prefix saves more prefill than its queue costs. Without evidence: least loaded."""

from __future__ import annotations

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.evidence import SESSION_HOME, cached_tokens
from semgate.placement.policy.interface import PolicyOptions, Stateless


class PrecisePrefix(Stateless):
    name = "precise_prefix"

    def __init__(self, options: PolicyOptions) -> None:
        self._lag_s = options.announce_lag_s

    def choose(self, case: Case) -> Choice:
        cached = cached_tokens(case, self._lag_s)
        saved = case.price.saved_ms(case.request.prompt_tokens, cached)
        scores = saved - case.wait_ms
        place = best_in_turn(scores, case.turn)
        if case.cached_blocks[place] > 0.0:
            return Choice(place, "exact_route", scores, f"its prefix saves {saved[place]:.0f} ms", cached[place])
        if cached[place] > 0.0:
            return Choice(place, "cold_route", scores, SESSION_HOME, cached[place])
        reason = "queues outweigh every cached prefix" if cached.any() else "no replica holds its prefix"
        return Choice(place, "cold_route", scores, reason)
