"""Both connector classes of the TensorRT-LLM adapter under a stub of the engine, which compares every page served."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.adapter import Answer, Shape
from tests.unit.semblend.integration.trtllm.stub_engine import StubEngine, StubRequest, arguments

from semblend.contract import ContextRisk, Event, Materialized, Run, decode_line
from semblend.integration.trtllm.options import WHERE

VERSION = "1.2.1"
EXACT = ContextRisk(0, 0, 0.0)


class TrtllmStub:
    tells_runs = True

    def __init__(self, folder: Path, name: str, *, require_salt: bool = False, enabled: bool = True) -> None:
        self.name = name
        self.loads: frozenset[Shape] = frozenset()
        self._events_file = folder / "events.jsonl"
        options: dict[str, Any] = {"events": str(self._events_file), "require_salt": require_salt}
        if name == "trtllm_exact_prefix":
            self.loads = frozenset({"prefix"})
            options |= {"materialization": "exact_prefix", "validated_version": VERSION, "min_donor_tokens": 64}
        self._patch = pytest.MonkeyPatch()
        self._patch.setenv(WHERE, json.dumps(options))
        self._patch.setenv("SEMBLEND_ENABLED", str(int(enabled)))
        self._patch.setattr("semblend.integration.trtllm.connector.installed_version", lambda: VERSION)
        self._engine = StubEngine(arguments(folder / "model"))
        self._leader = self._engine.scheduler.leader
        self._plan = self._leader._planner.plan
        self._serial = 0
        self._known: dict[str, list[int]] = {}

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        self._serial += 1
        request = StubRequest(self._serial, list(tokens), salt)
        boundary = self._engine.matched(request)
        promised = self._engine.serve(request)
        record = self._engine.last
        self._leader._take_reports()
        for donor_id in self._leader.donors.ids():
            self._known.setdefault(donor_id, list(tokens))
        if record is None:
            return Answer(boundary, promised)
        load = record.load
        runs = (Run(load.donor_id, load.boundary, load.boundary, promised, EXACT),) if promised else ()
        confirmed = [e.reused_tokens for e in self.events() if isinstance(e, Materialized)] if promised else []
        reason = record.decline.reason.value if record.decline is not None else None
        return Answer(
            boundary, promised, runs, 0, confirmed[-1] if confirmed else None, record.plan is not None, reason
        )

    def forget_exact(self) -> None:
        self._engine.forget_tree()

    def forget_donors(self) -> None:
        for donor_id in self._leader.donors.ids():
            self._leader.donors.drop(donor_id, "reset")

    def break_look_up(self, broken: bool) -> None:
        self._leader._planner.plan = _broken if broken else self._plan  # type: ignore[method-assign]

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        return self._known[donor_id]

    def events(self) -> Sequence[Event]:
        if not self._events_file.exists():
            return []
        return [decode_line(line).event for line in self._events_file.read_text(encoding="utf-8").splitlines()]

    def close(self) -> None:
        self._engine.close()
        self._patch.undo()


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")
