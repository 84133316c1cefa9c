"""The refusal of a process without the engine: no extra of ours brings one, so it says what to install instead."""

from __future__ import annotations

from typing import Final

from sembase.errors import MissingDependencyError, SemBlendError

READ_VERSION: Final = "1.2.1"  # newest stable version whose published interface we follow; none could be run


class EngineMissingError(MissingDependencyError):
    """TensorRT-LLM cannot be imported here."""

    def __init__(self, seen: str) -> None:
        how = (
            f"on a machine with an NVIDIA GPU install it beside semblend, pip install tensorrt_llm=={READ_VERSION} "
            "from NVIDIA's package index, or install semblend[trtllm] in NVIDIA's container"
        )
        SemBlendError.__init__(self, f"TensorRT-LLM cannot be imported ({seen}); {how}")
        self.package, self.extra = "tensorrt_llm", ""
