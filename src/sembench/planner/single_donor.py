"""``--disable-multi-donor``: plans from the one donor with the most planned tokens, without composition."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembench.planner import DonorPlanner
from semblend.contract import Decline, Namespace, ReusePlan

_ALONE: Final = "sembench-single-donor"


class SingleDonorPlanner:
    """Plans with all donors, picks the one with the most planned tokens, and plans again with that donor alone."""

    def __init__(self, planner: DonorPlanner) -> None:
        self._planner = planner
        self._donors: dict[str, tuple[NDArray[np.int64], str]] = {}

    def register(self, donor_id: str, ids: NDArray[np.int64], namespace: Namespace, text: str) -> None:
        self._planner.register(donor_id, ids, namespace, text)
        self._donors[donor_id] = (ids, text)

    def forget(self, donor_id: str) -> None:
        self._planner.forget(donor_id)
        self._donors.pop(donor_id, None)

    def plan(
        self, ids: NDArray[np.int64], namespace: Namespace, exact_prefix_tokens: int, text: str
    ) -> ReusePlan | Decline:
        answer = self._planner.plan(ids, namespace, exact_prefix_tokens, text)
        if isinstance(answer, Decline) or len(answer.donor_ids) == 1:
            return answer
        given = {d: sum(run.length for run in answer.runs if run.donor_id == d) for d in answer.donor_ids}
        best = max(given, key=lambda donor_id: given[donor_id])
        alone = f"{_ALONE}\x1f{best}"
        scratch = replace(namespace, tenant=f"{_ALONE}\x1f{namespace.tenant!r}")
        self._planner.register(alone, self._donors[best][0], scratch, self._donors[best][1])
        self._planner.wait_until_indexed()
        try:
            single = self._planner.plan(ids, scratch, exact_prefix_tokens, text)
        finally:
            self._planner.forget(alone)
        if isinstance(single, Decline):
            return replace(single, discoveries=answer.discoveries)
        # The plan must name the donor that the caller registered; its tokens are the same.
        runs = tuple(replace(run, donor_id=best) for run in single.runs)
        return ReusePlan(
            prompt_tokens=single.prompt_tokens,
            exact_prefix_tokens=single.exact_prefix_tokens,
            claimed=single.claimed,
            runs=runs,
            compute=single.compute,
            discoveries=answer.discoveries,
            truncated=single.truncated,
        )

    def wait_until_indexed(self) -> None:
        self._planner.wait_until_indexed()

    def close(self) -> None:
        self._planner.close()
