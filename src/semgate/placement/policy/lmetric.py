"""New prefill tokens times batch size, the least wins: LMetric (OSDI 2026), without a price and without tuning.

Beside our policies for comparison. The batch counts the request itself, so that an idle replica does not win whatever
it would have to compute. The score is minus that product, not milliseconds.
"""

from __future__ import annotations

import numpy as np

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.decision import RoutePath
from semgate.placement.evidence import cached_tokens
from semgate.placement.policy.interface import Needs, PolicyOptions, Stateless


class Lmetric(Stateless):
    name = "lmetric"
    needs = Needs(tokens="required", text="ignored")

    def __init__(self, options: PolicyOptions) -> None:
        self._lag_s = options.announce_lag_s

    def choose(self, case: Case) -> Choice:
        cached = np.minimum(cached_tokens(case, self._lag_s), max(case.request.prompt_tokens - 1, 0))
        new_tokens = case.request.prompt_tokens - cached
        scores = -np.maximum(new_tokens, 1.0) * (case.batch + 1.0)
        chosen = best_in_turn(scores, case.turn)
        path: RoutePath = "exact_route" if case.cached_blocks[chosen] > 0.0 else "cold_route"
        reason = f"{new_tokens[chosen]:.0f} new prefill tokens beside {case.batch[chosen]:.0f} requests"
        return Choice(chosen, path, scores, reason, cached[chosen])
