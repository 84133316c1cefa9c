"""Functions of ours around the engine's own, installed when the first cache of ours is built and not before.

Around the forward pass: gaps are computed before it, and each request's provenance is attached after it. After a step,
and while the engine is idle: a slice of a repair is computed. After a request enters the queue: its text is decoded and
embedded from then on, on other threads. A request that has to wait has its text when it is looked up; one that finds
the engine idle is looked up at once, by its tokens alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from semblend.contract import TokenRange
from semblend.integration.border import Border
from semblend.integration.core.cost_probe import MIN_TIMED_TOKENS
from semblend.integration.sglang.gaps import GapFiller
from semblend.plan.reuse_cost import Work, pass_work

FORWARD: Final = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
ARRIVAL: Final = "sglang.srt.managers.scheduler.Scheduler._add_request_to_queue"
IDLE: Final = "sglang.srt.managers.scheduler.Scheduler.on_idle"
STEP: Final = "sglang.srt.managers.scheduler.Scheduler.process_batch_result"

ProvenanceOf = Callable[[str], Any]
Took = Callable[[Work, float], None]
_registered: Final[set[str]] = set()


def install(target: str) -> bool:
    """Idempotent. Returns whether the engine's class really calls our hook: its registry only logs failures."""
    if target not in _registered:
        _registered.add(target)
        HookRegistry.register(target, *_HOOKS[target])
        HookRegistry.apply_hooks()
    return target in HookRegistry._patched


def _arrived(result: None, scheduler: Any, req: Any, *_: Any, **__: Any) -> None:
    """A request that was refused, or waits in another queue, is ignored."""
    expect = getattr(scheduler.tree_cache, "expect", None)
    waiting = scheduler.waiting_queue
    if expect is not None and waiting and waiting[-1] is req:
        expect(req)


def _idle(original: Callable[..., Any], scheduler: Any, *given: Any, **named: Any) -> Any:
    """One slice, then the engine looks for requests again. It sleeps (--sleep-on-idle) when nothing is left. While
    requests wait for donors of other replicas it rests a few milliseconds per round."""
    cache = scheduler.tree_cache
    if getattr(cache, "awaits_donors", False):
        cache.rest()
    if getattr(cache, "is_repairing", False) and scheduler.is_fully_idle():
        cache.repair(idle=True)
        if cache.is_repairing and scheduler.idle_sleeper is not None:
            return None
    return original(scheduler, *given, **named)


def _stepped(result: None, scheduler: Any, *_: Any, **__: Any) -> None:
    cache = scheduler.tree_cache
    if getattr(cache, "is_repairing", False):
        cache.repair(idle=False)


def _time(took: Took, batch: Any, elapsed_ms: float) -> None:
    lengths = list(batch.extend_seq_lens_cpu or ())
    if sum(lengths) >= MIN_TIMED_TOKENS:
        starts = batch.extend_prefix_lens_cpu
        parts = zip(starts, lengths, strict=True)
        took(pass_work(TokenRange(start, start + length) for start, length in parts if length), elapsed_ms)


class ForwardHook:
    """One per process. ``serve`` names the runner and filler it works for; other runners pass through untouched."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._filler: GapFiller | None = None
        self._provenance_of: ProvenanceOf | None = None
        self._border: Border | None = None
        self._took: Took | None = None

    def serve(
        self, runner: Any, filler: GapFiller, provenance_of: ProvenanceOf, border: Border, took: Took | None = None
    ) -> None:
        """``provenance_of`` gives what the client of a request receives, or None for an unknown request. ``took``
        receives what the engine's own passes compute, and the milliseconds."""
        self._runner, self._filler, self._provenance_of, self._border = runner, filler, provenance_of, border
        self._took = took

    def __call__(self, original: Callable[..., Any], runner: Any, forward_batch: Any, *given: Any, **named: Any) -> Any:
        if runner is not self._runner or self._filler is None or not forward_batch.forward_mode.is_extend():
            return original(runner, forward_batch, *given, **named)
        if self._filler.fill(runner, forward_batch, partial(original, runner)):
            forward_batch.forward_metadata_ready = False  # the attention backend planned our pass since
        started = time.perf_counter()
        output = original(runner, forward_batch, *given, **named)
        if self._took is not None and self._border is not None:
            elapsed_ms = (time.perf_counter() - started) * 1e3
            self._border.call("tell", "", partial(_time, self._took, forward_batch, elapsed_ms), None)
        if self._provenance_of is not None and self._border is not None:
            self._border.call("tell", "", partial(self._attach, output, forward_batch, self._provenance_of), None)
        return output

    @staticmethod
    def _attach(output: Any, batch: Any, provenance_of: ProvenanceOf) -> None:
        """The engine carries this to ``meta_info`` of the answers, one entry per request; of several chunks of one
        prompt it keeps the last one's entry."""
        logits = output.logits_output
        if logits is None or not batch.rids:
            return
        entries = [provenance_of(rid) for rid in batch.rids]
        if any(entry is not None for entry in entries):
            logits.customized_info = dict(logits.customized_info or {}) | {"semblend": entries}


HOOK: Final = ForwardHook()
_HOOKS: Final[dict[str, tuple[Callable[..., Any], HookType]]] = {
    FORWARD: (HOOK, HookType.AROUND),
    ARRIVAL: (_arrived, HookType.AFTER),
    IDLE: (_idle, HookType.AROUND),
    STEP: (_stepped, HookType.AFTER),
}
