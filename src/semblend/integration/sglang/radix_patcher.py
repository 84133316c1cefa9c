"""``patch_radix_cache()``: for programs that start SGLang from their own Python process.

Nothing is patched on an SGLang with a registry of radix backends: ours is registered, and the caller selects it with
``radix_cache_backend="semblend"``. The engine's own processes register it by the entry point. Versions without the
registry (0.5.11 and older) cannot be patched soundly: they have no admission of request-owned KV to patch, and the
older ones load no plug-in in the scheduler's process.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from semblend.integration.sglang.plugin import BACKEND, engine_missing, register, without_registry
from semblend.integration.sglang.support import VERIFIED_VERSION

_log: Final = logging.getLogger("semblend.sglang")


@dataclass(frozen=True, slots=True)
class Registration:
    """``backend`` is what to give as ``radix_cache_backend``."""

    backend: str
    version: str
    is_verified: bool


def patch_radix_cache() -> Registration:
    """Call before SGLang starts; calling it again changes nothing. An SGLang without the registry is refused."""
    try:
        import sglang  # noqa: PLC0415 - the door exists without the engine
    except ImportError as error:
        raise engine_missing(error) from None
    version = str(getattr(sglang, "__version__", "unknown"))
    try:
        register()
    except ImportError as error:
        raise without_registry(error) from None
    _log.warning('SemBlend is registered; SGLang uses it when it starts with radix_cache_backend="%s"', BACKEND)
    return Registration(BACKEND, version, version == VERIFIED_VERSION)
