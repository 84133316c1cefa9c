"""Around the engine's forward pass: holes are filled before it, and clients hear afterwards what was reused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookType

from semblend.integration.border import Border
from semblend.integration.sglang.holes import HoleBoard
from semblend.integration.sglang.hooks import put_in_place

TARGET: Final = "sglang.srt.model_executor.model_runner.ModelRunner.forward"

Told = Callable[[str], Any]


class ForwardHook:
    """One per process. ``serve`` names the runner and board it works for; other runners pass through untouched."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._board: HoleBoard | None = None
        self._told: Told | None = None
        self._border: Border | None = None
        self._untold: dict[str, int] = {}  # tokens of prompts that are blended and not yet computed to their end

    def serve(self, runner: Any, board: HoleBoard, told: Told, border: Border) -> None:
        """``told`` gives what the client hears of a request, or None."""
        self._runner, self._board, self._told, self._border = runner, board, told, border

    def __call__(self, original: Callable[..., Any], runner: Any, forward_batch: Any, *given: Any, **named: Any) -> Any:
        if runner is not self._runner or self._board is None or not (self._board or self._untold):
            return original(runner, forward_batch, *given, **named)
        if not forward_batch.forward_mode.is_extend():
            return original(runner, forward_batch, *given, **named)
        filled = self._board.fill(runner, forward_batch, partial(original, runner))
        output = original(runner, forward_batch, *given, **named)
        self._untold |= {order.rid: len(order.tokens) for order in filled}
        if self._untold and self._told is not None and self._border is not None:
            self._border.call("tell", "", partial(self._tell, output, forward_batch, self._told), None)
        return output

    def _tell(self, output: Any, batch: Any, told: Told) -> None:
        """The engine carries this to ``meta_info`` of the answers, one entry per request; of chunks it takes the last
        one's word."""
        words = {rid: told(rid) for rid in self._untold}
        logits = output.logits_output
        if logits is not None and not words.keys().isdisjoint(batch.rids):
            known = dict(logits.customized_info or {})
            logits.customized_info = known | {"semblend": [words.get(rid) for rid in batch.rids]}
        ends = zip(batch.rids, batch.extend_prefix_lens_cpu, batch.extend_seq_lens_cpu, strict=True)
        ended = {rid for rid, start, length in ends if start + length >= self._untold.get(rid, 0)}
        self._untold = {
            rid: tokens for rid, tokens in self._untold.items() if rid not in ended and words[rid] is not None
        }


HOOK: Final = ForwardHook()


def install() -> bool:
    """Whether every forward pass now goes through the hook."""
    return put_in_place(TARGET, HOOK, HookType.AROUND)
