"""The entry point SGLang loads in each of its processes: registers the radix backend and touches nothing else."""

from __future__ import annotations

import sys
from typing import Any, Final

from sembase.errors import ConfigurationError
from semblend.integration.core.missing_engine import EngineMissingError
from semblend.integration.sglang.support import VERIFIED_VERSION

BACKEND: Final = "semblend"
_INSTALL: Final = f"pip install sglang=={VERIFIED_VERSION}"


def register() -> None:
    """Idempotent. The engine logs what this raises and continues: the launcher checks that it happened."""
    from sglang.srt.mem_cache.registry import (  # noqa: PLC0415 - only a process of the engine has it
        get_radix_cache_factory,
        register_radix_cache_backend,
    )

    if get_radix_cache_factory(BACKEND) is None:
        register_radix_cache_backend(BACKEND, build)


def build(context: Any) -> Any:
    """Imports torch and the rest only where the backend was selected."""
    from semblend.integration.sglang.start import build_cache  # noqa: PLC0415

    return build_cache(context)


def engine_missing(error: ImportError) -> EngineMissingError:
    return EngineMissingError(
        "SGLang", "sglang", str(error), f"install it in the same environment as semblend: {_INSTALL}"
    )


def without_registry(error: ImportError) -> ConfigurationError:
    """An SGLang that is too old to register a radix cache with, or whose registry imports what is not installed."""
    if not str(error.name or "sglang").startswith("sglang"):
        return ConfigurationError(f"SGLang needs the package {error.name}, which is not installed here ({error})")
    version = getattr(sys.modules.get("sglang"), "__version__", "of an unknown version")
    return ConfigurationError(f"SGLang {version} has no registry of radix backends ({error}); {_INSTALL}")
