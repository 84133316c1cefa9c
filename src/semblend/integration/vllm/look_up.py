"""The look-up of a request: what may be loaded beyond the exact prefix, or why nothing is."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from semblend.contract import Decline, DeclineReason, ReusePlan, TokenRange
from semblend.integration.claims import exact_until, prefix_shaped, with_recompute_fraction, worth_its_time
from semblend.integration.core.refresh_on_repeat import RefreshOnRepeat, novel_stretches
from semblend.plan.fidelity import OPEN, FidelityGate
from semblend.plan.reuse_cost import ReuseCost, Timing

if TYPE_CHECKING:
    from semblend.fleet.donor_object import RowShape
    from semblend.integration.texts import TextDecoder
    from semblend.integration.vllm.options import ConnectorOptions
    from semblend.integration.vllm.request_record import VllmRequest
    from semblend.pipeline.planner import Planner

# Fragments come from the semantic path, which needs the prompt's text: the longest a request waits for it.
TEXT_WAIT_S: Final = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """What the workers can do, by their self-test. An empty ``fault`` means that they can serve."""

    fault: str
    sparse_forward: bool
    ranks: int
    block_tokens: int
    hash_tokens: int
    max_step_tokens: int
    bytes_per_token: int
    model: str = ""  # as the engine names it in its answers
    fleet_shape: RowShape | None = None  # of donors exchanged with other replicas; None: none are
    probe: tuple[Timing, ...] = ()  # what forward passes took at start-up; empty: not measured here


class LookUp:
    """Planner, semantic path and refresh on repeat, in this order, limited to what the workers can do."""

    def __init__(
        self,
        options: ConnectorOptions,
        planner: Planner,
        decoder: TextDecoder | None,
        capabilities: Capabilities,
        fidelity: FidelityGate = OPEN,
        cost: ReuseCost | None = None,
    ) -> None:
        self._options = options
        self._planner = planner
        self._decoder = decoder
        self._can = capabilities
        self._fidelity = fidelity
        self._cost = cost or ReuseCost()
        self._fills_gaps = capabilities.sparse_forward and planner.settings.strict_prefix_boundary
        self._plans_fragments = decoder is not None and not planner.settings.exact_materialization_only
        self._refresh = RefreshOnRepeat(options.gates.min_run_tokens) if options.refresh_on_repeat else None

    def stage(self, record: VllmRequest) -> None:
        """A prompt has arrived: start the semantic path on its own threads."""
        if self._decoder is not None and record.is_plain and record.namespace.is_known:
            self._decoder.decode(record.request_id, record.tokens, partial(self._staged, record))

    def needs_time(self, record: VllmRequest) -> bool:
        return self._plans_fragments and record.text is None and time.monotonic() - record.arrived_s < TEXT_WAIT_S

    def answer(self, record: VllmRequest, boundary: int) -> ReusePlan | Decline:
        refusal = self._refusal(record)
        if refusal is not None:
            return refusal
        text = record.text if self._plans_fragments else None
        answer = self._planner.plan(record.tokens, record.namespace, boundary, text)
        if isinstance(answer, ReusePlan) and not self._fills_gaps:
            ratio = self._options.gates.min_reuse_ratio
            answer = prefix_shaped(answer, ratio, may_rotate=self._can.sparse_forward)
        if isinstance(answer, ReusePlan):
            answer = self._fitted(record, answer, self._can.max_step_tokens)
        record.due = self._due(record, answer) if isinstance(answer, ReusePlan) else ()
        if record.due:
            return Decline(DeclineReason.DONOR_REFRESH, "repeated passages have no donor yet", answer.discoveries)
        if isinstance(answer, ReusePlan):
            tokens = record.tokens
            record.exact_tokens = exact_until(answer, lambda donor_id: self._planner.shared_prefix(donor_id, tokens))
        return answer

    def fit(self, record: VllmRequest, max_computed_tokens: int) -> None:
        """Keep only as much of the plan as may be computed; a decline if that is nothing."""
        assert record.plan is not None, "only plans are cut"
        whole = dataclasses.replace(record.plan, recompute_fraction=None)
        record.answered(self._fitted(record, whole, max_computed_tokens), record.exact_prefix_tokens)

    def served(self, record: VllmRequest) -> None:
        """The engine has acted on the answer."""
        if self._refresh is not None and (record.due or record.plan is not None):
            self._refresh.served(record.due)
            record.due = ()

    def novel(self, record: VllmRequest) -> list[TokenRange]:
        """Passages that a blended request computed after inexact KV, long enough to be found again."""
        if not record.is_blended or record.plan is None:
            return []
        least = self._options.gates.min_run_tokens
        return [part for part in novel_stretches(record.plan, record.exact_tokens) if len(part) >= least]

    def remember(self, record: VllmRequest, novel: list[TokenRange]) -> None:
        """The KV of these passages is not kept; when they repeat they are worth a cold request."""
        if self._refresh is not None:
            self._refresh.remember(record.tokens, record.namespace, novel)

    def finish(self, record: VllmRequest) -> None:
        """Add discoveries that came too late for the request itself."""
        if record.text is not None and not record.discoveries and not record.is_accepted:
            record.discoveries = self._planner.discover(record.text, record.namespace)

    def forget_all(self) -> None:
        if self._refresh is not None:
            self._refresh.clear()

    def _staged(self, record: VllmRequest, text: str) -> None:
        """On the decoder's thread."""
        self._planner.stage(text, record.namespace)
        record.text = text

    def _fitted(self, record: VllmRequest, plan: ReusePlan, max_computed_tokens: int) -> ReusePlan | Decline:
        fitted = with_recompute_fraction(
            plan,
            self._fidelity,
            self._model_of(record),
            record.hints.recompute_fraction,
            self._options,
            self._options.gates,
            can_recompute=self._can.sparse_forward,
            max_computed_tokens=max_computed_tokens,
        )
        return worth_its_time(fitted, self._cost, self._options, self._options.gates)

    def _model_of(self, record: VllmRequest) -> str:
        lora = record.request.lora_request
        return self._can.model if lora is None else lora.lora_name

    def _refusal(self, record: VllmRequest) -> Decline | None:
        """Requests that cannot be served with loaded KV, before any search."""
        request = record.request
        if self._can.fault:
            return Decline(DeclineReason.UNSUPPORTED_MODE, self._can.fault)
        if not record.hints.reuse:
            return Decline(DeclineReason.DISABLED, "the request disabled reuse")
        if not record.is_plain or request.pooling_params is not None or request.resumable:
            return Decline(DeclineReason.UNSUPPORTED_MODE, "only token prompts of generating requests are blended")
        if request.skip_reading_prefix_cache:
            return Decline(
                DeclineReason.UNSUPPORTED_MODE, "the request does not read the prefix cache (prompt_logprobs?)"
            )
        return None

    def _due(self, record: VllmRequest, plan: ReusePlan) -> tuple[str, ...]:
        if self._refresh is None or record.hints.capture is False or self._options.capture == "hinted":
            return ()
        return self._refresh.due(record.tokens, record.namespace, plan)
