"""The replica with the least predicted queueing; ties are taken in turn. Every other policy falls back to this one."""

from __future__ import annotations

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.policy.interface import Needs, PolicyOptions, Stateless


class LeastLoaded(Stateless):
    name = "least_loaded"
    needs = Needs(tokens="ignored", text="ignored")

    def __init__(self, options: PolicyOptions) -> None:
        del options

    def choose(self, case: Case) -> Choice:
        scores = -case.wait_ms
        return Choice(best_in_turn(scores, case.turn), "cold_route", scores, "shortest predicted queue")
