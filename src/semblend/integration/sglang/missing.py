"""The refusal of a process without the engine: no extra of ours brings one, so it says what to install instead."""

from __future__ import annotations

from semblend.errors import MissingDependencyError, SemBlendError
from semblend.integration.sglang.support import VERIFIED_VERSION


class EngineMissingError(MissingDependencyError):
    """SGLang cannot be imported here."""

    def __init__(self, seen: str) -> None:
        how = f"install it beside semblend: pip install sglang=={VERIFIED_VERSION}"
        SemBlendError.__init__(self, f"SGLang cannot be imported ({seen}); {how}")
        self.package, self.extra = "sglang", ""
