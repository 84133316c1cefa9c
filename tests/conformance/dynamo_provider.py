"""The Dynamo provider fed by announcements as they come off the wire. It places; it never promises KV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.conformance.adapter import Answer, Shape
from tests.conformance.exact_cache import ExactCache
from tests.unit.semblend.donors.announcements import KEY, announced, batch

from semblend.contract import Decline, Event
from semblend.contract.donor_event import DonorsPurged
from semblend.donors.packing import pack, unpack
from semblend.integration.dynamo.provider import SemanticEvidenceProvider
from semblend.plan.gates import Gates

HOLDER, OTHER = (2, 0), (1, 0)


class DynamoProvider:
    name = "dynamo_provider"
    loads: frozenset[Shape] = frozenset()
    tells_runs = True

    def __init__(self, *, require_salt: bool = False, enabled: bool = True) -> None:
        self._events: list[Event] = []
        self._provider = SemanticEvidenceProvider(
            KEY, gates=Gates(), enabled=enabled, require_salt=require_salt, report=self._events.append
        )
        self._cache = ExactCache()
        self._look_up = self._provider.index.evidence
        self._serial = 0

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        self._serial += 1
        exact = self._cache.match(tokens, salt)
        held = {OTHER: 0, HOLDER: exact}
        answer = self._provider.evidence(list(tokens), held, cache_salt=salt, request_id=f"r{self._serial}")
        self._cache.publish(tokens, salt)
        if isinstance(answer, Decline):
            sent = batch(announced(f"d{self._serial}", np.asarray(tokens, np.uint32), salt))
            self._provider.apply(HOLDER[0], unpack(pack(sent)))
            return Answer(exact, reason=answer.reason.value)
        assert [entry.worker for entry in answer.workers if entry.semantic_tokens] == [HOLDER]
        return Answer(exact, found=True)

    def forget_exact(self) -> None:
        self._cache.clear()

    def forget_donors(self) -> None:
        self._provider.apply(HOLDER[0], unpack(pack(batch(DonorsPurged(None, "reset")))))

    def break_look_up(self, broken: bool) -> None:
        self._provider.index.evidence = _broken if broken else self._look_up  # type: ignore[method-assign]

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        raise LookupError("a router never sees a donor's tokens")

    def events(self) -> Sequence[Event]:
        return self._events

    def close(self) -> None:
        """Nothing is open."""


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")
