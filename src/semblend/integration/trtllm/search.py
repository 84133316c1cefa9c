"""Never run in TensorRT-LLM: which earlier prompts hold content of a new one. Reported; nothing is loaded.

Requests come in as the engine's scheduler looks them up and ends them; events go out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sembase.errors import DonorError
from semblend.contract import Decline, Declined, DeclineReason, Event, Namespace, ReusePlan
from semblend.integration.core.findable_donors import FindableDonors
from semblend.integration.core.request_record import RequestRecord
from semblend.integration.core.request_table import RequestTable
from semblend.integration.hints import Hints
from semblend.integration.trtllm.namespace import request_namespace
from semblend.integration.trtllm.options import TrtllmOptions
from semblend.pipeline.planner import Planner


class LlmRequest(Protocol):
    """What we read of the engine's request. Versions without ``cache_salt`` leave the tenant unknown."""

    @property
    def request_id(self) -> int: ...
    def get_tokens(self, beam: int) -> Sequence[int]: ...


class DonorSearch:
    """One per engine, called on its scheduler's thread."""

    def __init__(
        self, options: TrtllmOptions, planner: Planner, deployment: Namespace, emit: Callable[[Event], None]
    ) -> None:
        self._options = options
        self._planner = planner
        self._deployment = deployment
        self._emit = emit
        self._records: RequestTable[int, RequestRecord] = RequestTable()
        self._findable = FindableDonors(planner, emit)
        self._namespaces: dict[str, Namespace] = {}  # by donor

    def donor_ids(self) -> list[str]:
        return list(self._namespaces)

    def known(self, request_id: int) -> RequestRecord | None:
        return self._records.get(request_id)

    def look_up(self, request: LlmRequest, boundary: int) -> None:
        """Search for what follows ``boundary``, the end of the engine's own prefix, and report what was found."""
        tokens = np.asarray(request.get_tokens(0), dtype=np.uint32)
        namespace = request_namespace(self._deployment, request, require_salt=self._options.require_salt)
        record = RequestRecord(str(request.request_id), tokens, namespace, Hints())
        self._records.add(request.request_id, record)
        started = time.perf_counter()
        record.answered(self._answer(record, request, boundary), boundary)
        if (plan := record.plan) is not None:
            record.decline = Decline(
                DeclineReason.DISCOVERY_ONLY, f"{plan.reused_tokens} tokens in {len(plan.runs)} runs"
            )
        self._emit(record.lookup_event(time.perf_counter() - started))

    def withdraw(self, request_id: int) -> None:
        """Forget a request whose look-up failed."""
        self._records.pop(request_id)

    def finished(self, request: LlmRequest) -> None:
        """The request ends: report why nothing was reused, and let its prompt be found from now on."""
        record = self._records.pop(request.request_id)
        if record is None:
            return
        if record.decline is not None:
            self._emit(Declined(record.request_id, record.decline.reason.value, record.decline.detail))
        if _has_tokens_only(request):
            self._register(record)

    def drop(self, donor_id: str, reason: str) -> None:
        if (namespace := self._namespaces.pop(donor_id, None)) is not None:
            self._findable.removed(donor_id, namespace, reason)

    def _answer(self, record: RequestRecord, request: LlmRequest, boundary: int) -> ReusePlan | Decline:
        if not _has_tokens_only(request):
            return Decline(DeclineReason.UNSUPPORTED_MODE, "only token prompts are looked up")
        return self._planner.plan(record.tokens, record.namespace, boundary)

    def _register(self, record: RequestRecord) -> None:
        tokens, namespace = record.tokens, record.namespace
        if not namespace.is_known or not self._is_new(record):
            return
        donor_id = secrets.token_hex(8)
        try:
            evicted = self._findable.index(donor_id, tokens, namespace)
        except DonorError:  # larger than the whole index
            return
        self._namespaces[donor_id] = namespace
        for other in evicted:
            self.drop(other, "capacity")
        self._findable.registered(record.request_id, donor_id, len(tokens), namespace, None)

    def _is_new(self, record: RequestRecord) -> bool:
        """Whether enough of the prompt is in no donor yet."""
        if len(record.tokens) < self._options.min_donor_tokens:
            return False
        known = self._findable.reusable(record.tokens, record.namespace)
        return known is None or len(record.tokens) - known.reused_tokens >= self._options.min_donor_tokens


def _has_tokens_only(request: Any) -> bool:
    """False for requests whose KV does not follow from their token ids alone."""
    return not getattr(request, "multimodal_hashes", None) and getattr(request, "prompt_embedding_table", None) is None
