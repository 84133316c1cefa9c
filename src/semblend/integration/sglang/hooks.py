"""Functions of ours around the engine's own, put in place when the first cache of ours is built and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

_registered: Final[set[str]] = set()


def put_in_place(target: str, hook: Callable[..., Any], kind: HookType) -> bool:
    """Idempotent. Whether the engine's class really calls a hook of ours: its registry logs failures and goes on."""
    if target not in _registered:
        _registered.add(target)
        HookRegistry.register(target, hook, kind)
        HookRegistry.apply_hooks()
    return target in HookRegistry._patched
