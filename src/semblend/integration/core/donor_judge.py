"""Would donors of other replicas let a request reuse more than the own ones do? Suggestions in, the parts to fetch out.

Remote donors never enter the planner of the engine: a second one, with the same gates, judges them beside the request's
own donors. Called on one thread; the engine's planner may be used on another meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import ReusePlan
from semblend.fleet.donor_object import PAGE_TOKENS
from semblend.fleet.donor_parts import DonorPart, used_parts
from semblend.fleet.suggestions import RemoteDonor
from semblend.pipeline.planner import Planner

if TYPE_CHECKING:
    from semblend.contract import Namespace

JUDGE_BYTES: Final = 32 << 20  # index of the planner that judges suggestions
MIN_GAIN_TOKENS: Final = 128  # a fetch must let the request reuse so many tokens more than the own donors do


@dataclass(frozen=True, slots=True)
class UsefulParts:
    """``gained_tokens``: how many more would be reused with them."""

    parts: list[DonorPart]
    gained_tokens: int


class DonorJudge:
    def __init__(self, planner: Planner, page_tokens: int = PAGE_TOKENS, margin_tokens: int = 0) -> None:
        """``margin_tokens``: read before each run as well."""
        self._planner = planner
        self._margin_tokens = margin_tokens
        self._page_tokens = page_tokens
        self._judge = Planner(
            settings=replace(planner.settings, embedder="none"), gates=planner.gates, budget_bytes=JUDGE_BYTES
        )

    def useful_parts(
        self, tokens: NDArray[np.uint32], namespace: Namespace, suggested: Sequence[RemoteDonor]
    ) -> UsefulParts | None:
        """The parts of suggested donors that a plan over them and the own ones would reuse; None: too little."""
        known = self._planner.plan(tokens, namespace)
        reusable, own_ids = (known.reused_tokens, known.donor_ids) if isinstance(known, ReusePlan) else (0, ())
        held = {own_id: self._planner.tokens_of(own_id) for own_id in own_ids}
        own = {f"own {own_id}": found for own_id, found in held.items() if found is not None}
        plan = self._judged(tokens, namespace, own | {donor.donor_id: donor.tokens for donor in suggested})
        if plan is None or plan.reused_tokens - reusable < MIN_GAIN_TOKENS:
            return None
        parts = used_parts(suggested, plan.runs, self._page_tokens, self._margin_tokens)
        if any(part.ranges for part in parts):  # what is left out may be context that the gates count
            plan = self._judged(tokens, namespace, own | {part.donor.donor_id: part.tokens for part in parts})
            if plan is None or plan.reused_tokens - reusable < MIN_GAIN_TOKENS:
                return None
        return UsefulParts(parts, plan.reused_tokens - reusable) if parts else None

    def _judged(
        self, tokens: NDArray[np.uint32], namespace: Namespace, donors: Mapping[str, NDArray[np.uint32]]
    ) -> ReusePlan | None:
        """What would be reused if these were the donors."""
        try:
            for donor_id, known in donors.items():
                self._judge.register(donor_id, known, namespace)
            plan = self._judge.plan(tokens, namespace)
        finally:
            for donor_id in donors:
                self._judge.forget(donor_id)
        return plan if isinstance(plan, ReusePlan) else None
