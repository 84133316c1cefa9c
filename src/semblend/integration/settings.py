"""The only module of the adapters that uses the environment: launchers write, the engines' processes read.

SGLang starts its scheduler as a new process, and TensorRT-LLM's ``kv_connector_config`` carries no options: an
environment variable reaches both.
"""

from __future__ import annotations

import os
from typing import Final

SGLANG_OPTIONS: Final = "SGLANG_SEMBLEND_OPTIONS"
TRTLLM_OPTIONS: Final = "TRTLLM_SEMBLEND_OPTIONS"


def handed_on(name: str) -> str:
    return os.environ.get(name, "")  # noqa: TID251 - the settings module of the adapters


def hand_on(name: str, text: str) -> None:
    """Pass options to the engine's processes that start after this."""
    os.environ[name] = text  # noqa: TID251 - the settings module of the adapters
