"""The whole vLLM connector under the engine's own scheduler and block pool; workers hold traces instead of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.adapter import BOTH, Answer
from tests.engines.vllm_inside.world import make_world

from semblend.contract import ContextRisk, Event, Run
from semblend.settings import Settings

RISK = ContextRisk(0, 0, 0.0)


class VllmScheduler:
    name = "vllm_scheduler"
    loads = BOTH
    tells_runs = True

    def __init__(self, folder: Path, *, require_salt: bool = False, enabled: bool = True) -> None:
        self._events: list[Event] = []
        self._world = make_world(
            folder,
            blocks=120,
            host_tokens=8192,
            emit=self._events.append,
            refresh_on_repeat=False,
            prefill_passages=False,
            require_salt=require_salt,
            min_capture_tokens=64,
        )
        connector = self._world.scheduler.connector
        connector._border._report = self._events.append  # bound when the engine made the connector
        planner = connector._planner
        if not enabled:
            planner.settings = Settings(embedder="none", enabled=False)
        self._planner = planner
        self._plan = planner.plan
        self._serial = 0
        self._donors: dict[str, list[int]] = {}

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        self._serial += 1
        request_id = f"r{self._serial}"
        self._world.add(request_id, list(tokens), 1, salt)
        self._world.drain()
        reply: dict[str, Any] | None = self._world.replies.get(request_id)
        if reply is None:
            return Answer()  # nothing to say about a request whose end broke, but it was answered
        if reply["donor_id"] is not None:
            self._donors[reply["donor_id"]] = list(tokens)
        runs = tuple(
            Run(run["donor_id"], run["donor_start"], run["target_start"], run["length"], RISK) for run in reply["runs"]
        )
        boundary = reply["exact_prefix_tokens"]
        is_confirmed = reply["outcome"] == "backend_materialized_reuse"
        promised = runs[-1].target_end - boundary if runs else 0
        return Answer(
            boundary,
            promised,
            runs,
            reply["computed_tokens"],
            reply["reused_tokens"] if is_confirmed else None,
            bool(runs) or bool(reply["discoveries"]),
            reply["reason"],
        )

    def forget_exact(self) -> None:
        assert self._world.scheduler.reset_prefix_cache()

    def forget_donors(self) -> None:
        self._world.half.reset()
        self._world.drain()

    def break_look_up(self, broken: bool) -> None:
        self._planner.plan = _broken if broken else self._plan

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        return self._donors[donor_id]

    def events(self) -> Sequence[Event]:
        return self._events

    def close(self) -> None:
        self._world.scheduler.connector.shutdown()
        self._world.pool.shutdown()


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken on purpose")
