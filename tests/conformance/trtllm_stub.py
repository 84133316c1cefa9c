"""The TensorRT-LLM connector, called as its published interface says. It finds and never promises KV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.adapter import Answer, Shape
from tests.conformance.exact_cache import ExactCache
from tests.unit.semblend.integration.trtllm.engine_shape import Request, arguments

from semblend.contract import Event, decode_line
from semblend.integration.trtllm.connector import SemBlendConnectorScheduler
from semblend.integration.trtllm.options import WHERE


class TrtllmStub:
    name = "trtllm_discovery"
    loads: frozenset[Shape] = frozenset()
    tells_runs = True

    def __init__(self, folder: Path, *, require_salt: bool = False, enabled: bool = True) -> None:
        self._events_file = folder / "events.jsonl"
        self._patch = pytest.MonkeyPatch()
        options = {"events": str(self._events_file), "require_salt": require_salt}
        self._patch.setenv(WHERE, json.dumps(options))
        self._patch.setenv("SEMBLEND_ENABLED", str(int(enabled)))
        self._scheduler = SemBlendConnectorScheduler(arguments(folder / "model"))
        self._search = self._scheduler.search
        self._plan = self._search._planner.plan
        self._cache = ExactCache()
        self._serial = 0
        self._known: dict[str, list[int]] = {}

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        self._serial += 1
        request = Request(self._serial, tokens, salt)
        boundary = self._cache.match(tokens, salt)
        promised, _ = self._scheduler.get_num_new_matched_tokens(request, boundary)
        record = self._search.known(self._serial)
        self._cache.publish(tokens, salt)
        self._scheduler.request_finished(request, [])
        for donor_id in self._search.donor_ids():
            self._known.setdefault(donor_id, list(tokens))
        if record is None:
            return Answer(boundary, promised)
        reason = record.decline.reason.value if record.decline is not None else None
        return Answer(boundary, promised, found=record.plan is not None, reason=reason)

    def forget_exact(self) -> None:
        self._cache.clear()

    def forget_donors(self) -> None:
        for donor_id in self._search.donor_ids():
            self._search.drop(donor_id, "reset")

    def break_look_up(self, broken: bool) -> None:
        self._search._planner.plan = _broken if broken else self._plan  # type: ignore[method-assign]

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        return self._known[donor_id]

    def events(self) -> Sequence[Event]:
        if not self._events_file.exists():
            return []
        return [decode_line(line).event for line in self._events_file.read_text(encoding="utf-8").splitlines()]

    def close(self) -> None:
        self._scheduler.close()
        self._patch.undo()


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")
