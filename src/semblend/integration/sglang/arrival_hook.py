"""Where a request enters the engine's queue: its text is decoded and embedded from there on, on other threads.

A look-up happens when the request's turn comes. One that waits has its text by then; one that finds the engine idle is
looked up in the same round, by its tokens alone: the scheduler waits for no embedder.
"""

from __future__ import annotations

from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookType

from semblend.integration.sglang.hooks import put_in_place

TARGET: Final = "sglang.srt.managers.scheduler.Scheduler._add_request_to_queue"


def install() -> bool:
    """Whether the cache of ours hears of every request that begins to wait."""
    return put_in_place(TARGET, _arrived, HookType.AFTER)


def _arrived(result: None, scheduler: Any, req: Any, *_: Any, **__: Any) -> None:
    """A request that was refused, or waits in another queue, is nobody's business."""
    expect = getattr(scheduler.tree_cache, "expect", None)
    waiting = scheduler.waiting_queue
    if expect is not None and waiting and waiting[-1] is req:
        expect(req)
