"""Around the engine's forward pass: gaps are computed before it, and each request's provenance is attached after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookType

from semblend.integration.border import Border
from semblend.integration.sglang.holes import HoleBoard
from semblend.integration.sglang.hooks import put_in_place

TARGET: Final = "sglang.srt.model_executor.model_runner.ModelRunner.forward"

ProvenanceOf = Callable[[str], Any]


class ForwardHook:
    """One per process. ``serve`` names the runner and board it works for; other runners pass through untouched."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._board: HoleBoard | None = None
        self._provenance_of: ProvenanceOf | None = None
        self._border: Border | None = None

    def serve(self, runner: Any, board: HoleBoard, provenance_of: ProvenanceOf, border: Border) -> None:
        """``provenance_of`` gives what the client of a request receives, or None for an unknown request."""
        self._runner, self._board, self._provenance_of, self._border = runner, board, provenance_of, border

    def __call__(self, original: Callable[..., Any], runner: Any, forward_batch: Any, *given: Any, **named: Any) -> Any:
        if runner is not self._runner or self._board is None or not forward_batch.forward_mode.is_extend():
            return original(runner, forward_batch, *given, **named)
        self._board.fill(runner, forward_batch, partial(original, runner))
        output = original(runner, forward_batch, *given, **named)
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


def install() -> bool:
    """Whether every forward pass now goes through the hook."""
    return put_in_place(TARGET, HOOK, HookType.AROUND)
