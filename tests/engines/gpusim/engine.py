"""The engine's names that the simulation changes or subclasses, untyped and in one place."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def engine_module(name: str) -> Any:
    return import_module(f"vllm.{name}")


CpuPlatform: Any = engine_module("platforms.cpu").CpuPlatform
DeviceCapability: Any = engine_module("platforms.interface").DeviceCapability
