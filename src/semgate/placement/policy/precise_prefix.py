"""The replica where the announced prefix saves more prefill than its queue costs. Without evidence: least loaded."""

from __future__ import annotations

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.evidence import SESSION_HOME, cached_tokens
from semgate.placement.policy.interface import Needs, PolicyOptions, Stateless


class PrecisePrefix(Stateless):
    name = "precise_prefix"
    needs = Needs(tokens="required", text="ignored")

    def __init__(self, options: PolicyOptions) -> None:
        self._lag_s = options.announce_lag_s

    def choose(self, case: Case) -> Choice:
        cached = cached_tokens(case, self._lag_s)
        saved = case.price.saved_ms(case.request.prompt_tokens, cached)
        scores = saved - case.wait_ms
        chosen = best_in_turn(scores, case.turn)
        if case.cached_blocks[chosen] > 0.0:
            return Choice(chosen, "exact_route", scores, f"cached prefix saves {saved[chosen]:.0f} ms", cached[chosen])
        if cached[chosen] > 0.0:
            return Choice(chosen, "cold_route", scores, SESSION_HOME, cached[chosen])
        reason = "queues outweigh every cached prefix" if cached.any() else "no replica holds the prefix"
        return Choice(chosen, "cold_route", scores, reason)
