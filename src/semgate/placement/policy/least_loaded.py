"""The replica with the least predicted queueing; equals in turn. What every other policy falls back to."""

from __future__ import annotations

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.policy.interface import PolicyOptions, Stateless


class LeastLoaded(Stateless):
    name = "least_loaded"

    def __init__(self, options: PolicyOptions) -> None:
        del options

    def choose(self, case: Case) -> Choice:
        scores = -case.wait_ms
        return Choice(best_in_turn(scores, case.turn), "cold_route", scores, "least queueing")
