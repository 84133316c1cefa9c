"""The vLLM adapter's look-up with a real planner, the engine around it simulated. Its scheduler is another driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.conformance.adapter import BOTH, Answer
from tests.conformance.exact_cache import BLOCK, ExactCache
from tests.unit.semblend.integration.vllm_fakes import config

from semblend.contract import Decline, DeclineReason, Event, ReusePlan
from semblend.integration.border import Border
from semblend.integration.hints import Hints
from semblend.integration.vllm.look_up import Capabilities, LookUp
from semblend.integration.vllm.namespace import deployment_namespace, request_namespace
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.request_record import VllmRequest
from semblend.pipeline.planner import Planner
from semblend.plan.gates import Gates
from semblend.settings import Settings

LOG = logging.getLogger("conformance")


class VllmLookUp:
    name = "vllm_look_up"
    loads = BOTH
    tells_runs = True

    def __init__(
        self, *, require_salt: bool = False, enabled: bool = True, options: ConnectorOptions | None = None
    ) -> None:
        self._options = options or ConnectorOptions(
            refresh_on_repeat=False, require_salt=require_salt, recompute_fraction=0.0, gates=Gates()
        )
        settings = Settings(embedder="none", enabled=enabled)
        self._planner = Planner(settings=settings, gates=self._options.gates, budget_bytes=1 << 24)
        can = Capabilities("", True, 1, BLOCK, BLOCK, 4096, 100)
        self._look_up = LookUp(self._options, self._planner, None, can)
        self._base = deployment_namespace(config(), "layout")
        self._cache = ExactCache()
        self._donors: dict[str, list[int]] = {}
        self._events: list[Event] = []
        self._border = Border(self._events.append, LOG)
        self._plan = self._planner.plan

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        namespace = request_namespace(self._base, salt, None, require_salt=self._options.require_salt)
        request: Any = SimpleNamespace(
            request_id=f"r{len(self._donors)}",
            mm_features=None,
            prompt_embeds=None,
            pooling_params=None,
            resumable=False,
            skip_reading_prefix_cache=False,
            lora_request=None,
        )
        record = VllmRequest(request.request_id, np.asarray(tokens, np.uint32), namespace, Hints(), request=request)
        boundary = self._cache.match(tokens, salt)
        look_up = partial(self._answer, record, boundary)
        answer = self._border.call("lookup", record.request_id, look_up, Decline(DeclineReason.INTERNAL_ERROR))
        if isinstance(answer, ReusePlan):
            self._cache.publish(tokens[: record.exact_tokens], salt)
            promised = answer.claim_end - boundary
            fraction = answer.recompute_fraction
            return Answer(
                boundary,
                promised,
                answer.runs,
                answer.computed_tokens,
                answer.reused_tokens,
                True,
                recompute_fraction=fraction,
            )
        self._cache.publish(tokens, salt)
        if namespace.is_known:
            donor_id = f"d{len(self._donors)}"
            self._planner.register(donor_id, list(tokens), namespace)
            self._donors[donor_id] = list(tokens)
        return Answer(boundary, found=bool(answer.discoveries), reason=answer.reason.value)

    def _answer(self, record: VllmRequest, boundary: int) -> ReusePlan | Decline:
        """The scheduler half asks only if a full block lies beyond the boundary."""
        if len(record.tokens) // BLOCK <= boundary // BLOCK:
            return Decline(DeclineReason.EXACT_PREFIX_COVERS)
        return self._look_up.answer(record, boundary)

    def forget_exact(self) -> None:
        self._cache.clear()

    def forget_donors(self) -> None:
        for donor_id in self._donors:
            self._planner.forget(donor_id)

    def break_look_up(self, broken: bool) -> None:
        self._planner.plan = _broken if broken else self._plan  # type: ignore[method-assign]

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        return self._donors[donor_id]

    def events(self) -> Sequence[Event]:
        return self._events

    def close(self) -> None:
        self._planner.close()


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")
