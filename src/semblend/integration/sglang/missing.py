"""Refusals of a process without the engine, or with one too old: no extra of ours brings one, so they say which one."""

from __future__ import annotations

import sys

from sembase.errors import ConfigurationError, MissingDependencyError, SemBlendError
from semblend.integration.sglang.support import VERIFIED_VERSION


class EngineMissingError(MissingDependencyError):
    """SGLang cannot be imported here."""

    def __init__(self, seen: str) -> None:
        how = f"install it beside semblend: pip install sglang=={VERIFIED_VERSION}"
        SemBlendError.__init__(self, f"SGLang cannot be imported ({seen}); {how}")
        self.package, self.extra = "sglang", ""


def without_registry(error: ImportError) -> ConfigurationError:
    """Of an imported engine that has nowhere to register a radix cache."""
    version = getattr(sys.modules.get("sglang"), "__version__", "of an unknown version")
    return ConfigurationError(
        f"SGLang {version} has no registry of radix backends ({error}); pip install sglang=={VERIFIED_VERSION}"
    )
