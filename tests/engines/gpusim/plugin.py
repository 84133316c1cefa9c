"""The entry point ``vllm.platform_plugins``: names the simulated platform to each process of the engine."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class ActiveDriver:
    """Makes the engine believe that Triton has a device; the kernels themselves are interpreted."""

    @staticmethod
    def is_active() -> bool:
        return True


def register() -> str:
    backends: Any = import_module("triton.backends").backends
    kind = type(next(iter(backends.values())))
    backends.setdefault("cpu", kind(compiler=None, driver=ActiveDriver))
    return "tests.engines.gpusim.platform.SimulatedGpu"
