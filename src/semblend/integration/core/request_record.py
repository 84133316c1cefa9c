"""One request between its arrival and its end, as every adapter tracks it. Each engine adds the fields it needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Decline, Discovery, LookupFinished, Namespace, ReusePlan, Run
from semblend.integration.hints import Hints


@dataclass(slots=True)
class RequestRecord:
    """``plan`` and ``decline`` answer the last look-up; exactly one of them is set once a look-up was made.

    ``backend_decline`` says why a plan was not served although the look-up had made one.
    """

    request_id: str
    tokens: NDArray[np.uint32]
    namespace: Namespace
    hints: Hints
    exact_prefix_tokens: int = 0
    plan: ReusePlan | None = None
    decline: Decline | None = None
    backend_decline: Decline | None = None
    exact_tokens: int = 0  # up to here the KV of the plan equals that of cold prefill
    is_accepted: bool = False  # the engine accepted the claim
    is_confirmed: bool = False  # the backend reported the load
    runs: tuple[Run, ...] = ()  # what is loaded, once the claim is accepted
    computed_tokens: int = 0
    recomputed_tokens: int = 0  # tokens of the runs that were computed all the same; part of computed_tokens
    selected_by: str | None = None  # the policy that chose the recomputed tokens, as the backend reports it
    donor_id: str | None = None  # the donor this request becomes
    discoveries: tuple[Discovery, ...] = ()

    @property
    def reused_tokens(self) -> int:
        return sum(run.length for run in self.runs) - self.recomputed_tokens

    @property
    def is_blended(self) -> bool:
        return self.is_accepted and self.backend_decline is None

    @property
    def blend_generation(self) -> int:
        """0: all its KV equals that of cold prefill. 1: some was loaded from another context."""
        return int(self.is_blended and self.exact_tokens < len(self.tokens))

    def answered(self, answer: ReusePlan | Decline, boundary: int) -> None:
        """Keep the answer of a look-up that began at ``boundary``, the end of the engine's exact prefix."""
        self.exact_prefix_tokens = boundary
        self.plan = answer if isinstance(answer, ReusePlan) else None
        self.decline = answer if isinstance(answer, Decline) else None
        self.discoveries = answer.discoveries

    def lookup_event(self, seconds: float) -> LookupFinished:
        plan, decline = self.plan, self.decline
        return LookupFinished(
            self.request_id,
            self.namespace.digest(),
            len(self.tokens),
            self.exact_prefix_tokens,
            plan.reused_tokens if plan is not None else 0,
            len(plan.runs) if plan is not None else 0,
            plan.donor_ids if plan is not None else (),
            max((found.similarity for found in self.discoveries), default=None),
            decline.reason.value if decline is not None else None,
            seconds * 1e6,
        )
