"""Each usable replica in turn, regardless of its cache and load."""

from __future__ import annotations

import numpy as np

from semgate.placement.case import Case, Choice
from semgate.placement.policy.interface import Needs, PolicyOptions, Stateless


class RoundRobin(Stateless):
    name = "round_robin"
    needs = Needs(tokens="ignored", text="ignored")

    def __init__(self, options: PolicyOptions) -> None:
        del options

    def choose(self, case: Case) -> Choice:
        turn = case.turn % len(case.candidates)
        return Choice(turn, "cold_route", np.zeros(len(case.candidates)), "next in turn")
