"""Sends the planned requests to a server at the planned pace and records the results."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from semantic_kv.collect.plan import Step
from semantic_kv.collect.recorder import TraceRecorder
from semantic_kv.collect.request import OK, PromptRequest, Served, Server

_FIRST_GUESS_MS: Final = 500.0
_WARM_UP: Final = "warm-up"
_REASON_CHARS: Final = 200
Progress = Callable[[Served], None]


@dataclass(frozen=True, slots=True)
class CollectSummary:
    """``reports_cached_tokens``: whether the server reports cached tokens; without them no fit is possible."""

    requests: int
    served: int
    failures: dict[str, int]
    reports_cached_tokens: bool
    seconds: float
    peak_concurrency: int


class Collection:
    """One run. Concurrency limits the open requests. Failures are recorded and counted, never retried."""

    def __init__(
        self, server: Server, recorder: TraceRecorder, concurrency: int, progress: Progress | None = None
    ) -> None:
        self._server = server
        self._recorder = recorder
        self._concurrency = concurrency
        self._progress = progress
        self._began = time.perf_counter()
        self._open: set[asyncio.Task[None]] = set()
        self._typical_ms: deque[float] = deque(maxlen=50)
        self._failures: Counter[str] = Counter()
        self._served = 0
        self._peak = 0
        self._omits_zero = False
        self._with_cached_tokens = 0

    async def run(self, steps: Sequence[Step], warm_up: Sequence[PromptRequest] = ()) -> CollectSummary:
        """Warm-up requests are marked and excluded from fits. Sending one twice shows how the server reports hits."""
        for request in warm_up:
            await self._one(request, {"warm_up": True})
        for step in steps:
            await self._wait_for_turn(step)
            self._spawn(step.request, {"pace": step.pace})
            if step.pace == "alone":
                await self._drain()
        await self._drain()
        return CollectSummary(
            requests=len(steps),
            served=self._served,
            failures=dict(self._failures),
            reports_cached_tokens=self._with_cached_tokens > 0,
            seconds=time.perf_counter() - self._began,
            peak_concurrency=self._peak,
        )

    async def _wait_for_turn(self, step: Step) -> None:
        if step.pace == "alone":
            await self._drain()
        elif step.pace == "paced":
            typical = median(self._typical_ms) if self._typical_ms else _FIRST_GUESS_MS
            await asyncio.sleep(step.gap * typical / 1000.0)
        while len(self._open) >= self._concurrency:
            await self._next_done()

    async def _drain(self) -> None:
        while self._open:
            await self._next_done()

    async def _next_done(self) -> None:
        done, self._open = await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def _spawn(self, request: PromptRequest, metadata: dict[str, object]) -> None:
        self._open.add(asyncio.create_task(self._one(request, metadata)))
        self._peak = max(self._peak, len(self._open))

    async def _one(self, request: PromptRequest, metadata: dict[str, object]) -> None:
        ticket = self._recorder.begin(request, 1000.0 * (time.perf_counter() - self._began))
        served = await self._server.ask(request)
        is_warm_up = "warm_up" in metadata
        self._omits_zero = self._omits_zero or bool(is_warm_up and served.cached_tokens)
        if served.status == OK and served.cached_tokens is None and self._omits_zero:
            # Some servers omit the count if it is 0; this one reported it before.
            served = replace(served, cached_tokens=0)
        self._recorder.finish(ticket, served, **metadata)
        if is_warm_up:
            return
        if served.status == OK:
            self._served += 1
            self._with_cached_tokens += served.cached_tokens is not None
            if metadata.get("pace") == "alone" and served.total_ms is not None:
                self._typical_ms.append(served.total_ms)
        else:
            self._failures[served.status[:_REASON_CHARS]] += 1
        if self._progress is not None:
            self._progress(served)


def warm_up_requests(steps: Sequence[Step]) -> list[PromptRequest]:
    """The longest prompt twice: the first triggers what the server loads lazily, the second must hit."""
    if not steps:
        return []
    longest = max((step.request for step in steps), key=lambda request: sum(len(m.content) for m in request.messages))
    head, *rest = longest.messages
    # A different prefix from the plan's, so that the warm-up does not fill the cache for it.
    marked = (replace(head, content=f"Warm-up. {head.content}"), *rest)
    return [PromptRequest(f"{_WARM_UP}-{number}", marked, longest.max_tokens, kind=_WARM_UP) for number in range(2)]
