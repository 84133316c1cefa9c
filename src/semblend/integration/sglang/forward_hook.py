"""The hook around the engine's forward pass, put in place when the first cache of ours is built and not before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from semblend.integration.sglang.holes import HoleBoard

TARGET: Final = "sglang.srt.model_executor.model_runner.ModelRunner.forward"

Told = Callable[[str], Any]


class ForwardHook:
    """One per process. ``serve`` names the runner and board it works for; other runners pass through untouched."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._board: HoleBoard | None = None
        self._told: Told | None = None

    def serve(self, runner: Any, board: HoleBoard, told: Told) -> None:
        """``told`` gives what the client hears of a request, or None."""
        self._runner, self._board, self._told = runner, board, told

    def __call__(self, original: Callable[..., Any], runner: Any, forward_batch: Any, *given: Any, **named: Any) -> Any:
        if runner is not self._runner or self._board is None or not self._board:
            return original(runner, forward_batch, *given, **named)
        if not forward_batch.forward_mode.is_extend():
            return original(runner, forward_batch, *given, **named)
        filled = self._board.fill(runner, forward_batch, partial(original, runner))
        output = original(runner, forward_batch, *given, **named)
        if filled and self._told is not None:
            _tell(output, forward_batch.rids, {order.rid for order in filled}, self._told)
        return output


def _tell(output: Any, rids: list[str], filled: set[str], told: Told) -> None:
    """The engine carries this to ``meta_info`` of the answers, one entry per request."""
    logits = output.logits_output
    if logits is not None:
        known = dict(logits.customized_info or {})
        logits.customized_info = known | {"semblend": [told(rid) if rid in filled else None for rid in rids]}


HOOK: Final = ForwardHook()
_installed: list[str] = []


def install() -> None:
    """Idempotent; the engine's registry patches a target once."""
    if not _installed:
        _installed.append(TARGET)
        HookRegistry.register(TARGET, HOOK, HookType.AROUND)
        HookRegistry.apply_hooks()


def is_installed() -> bool:
    """Whether the engine's class really calls the hook: its registry logs failures and goes on."""
    return TARGET in HookRegistry._patched
