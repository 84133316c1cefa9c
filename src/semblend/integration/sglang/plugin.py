"""The entry point SGLang loads in each of its processes: registers the radix backend and touches nothing else."""

from __future__ import annotations

from typing import Any, Final

BACKEND: Final = "semblend"


def register() -> None:
    """Idempotent. The engine logs what this raises and goes on: the launcher checks that it happened."""
    from sglang.srt.mem_cache.registry import (  # noqa: PLC0415 - only a process of the engine has it
        get_radix_cache_factory,
        register_radix_cache_backend,
    )

    if get_radix_cache_factory(BACKEND) is None:
        register_radix_cache_backend(BACKEND, build)


def build(context: Any) -> Any:
    """Imports torch and the rest only where the backend was asked for."""
    from semblend.integration.sglang.start import build_cache  # noqa: PLC0415

    return build_cache(context)
