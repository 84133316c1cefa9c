"""GPUs and models on paper: prefill is arithmetic at a fraction of the device's peak, a load is bytes over the link.

Nothing here was measured on a GPU. Prefill takes two operations per active parameter and token, plus causal attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from sembase.errors import ConfigurationError
from semestimate.work import Work

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    peak: float  # dense bf16 operations per second
    efficiency: float  # of it, in prefill
    host_link: float  # bytes per second from pinned memory


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    layers: int
    kv_bytes: int  # per token, all layers, all ranks, bf16
    active: float  # parameters used per token
    attention: int  # operations per token and context position
    ranks: int = 1
    efficiency: float = 1.0  # of the device's prefill: experts and communication cost
    is_replicated: bool = False  # every rank holds all KV

    @property
    def label(self) -> str:
        return self.name if self.ranks == 1 else f"{self.name}, {self.ranks} GPUs"


DEVICES: Final = (
    Device("A100", 312e12, 0.50, 25e9),
    Device("L40S", 362e12, 0.45, 25e9),
    Device("H100", 989e12, 0.50, 52e9),
    Device("B200", 2250e12, 0.45, 52e9),
    Device("MI300X", 1307e12, 0.40, 52e9),
)
MODELS: Final = (
    Model("Llama-3.2-1B", 16, 16 * 2 * 8 * 64 * 2, 1.24e9, 4 * 16 * 2048),
    Model("Llama-3.1-8B", 32, 32 * 2 * 8 * 128 * 2, 8.0e9, 4 * 32 * 4096),
    Model("Qwen3-30B-A3B", 48, 48 * 2 * 4 * 128 * 2, 3.3e9, 4 * 48 * 4096, efficiency=0.6),
    Model("Llama-3.3-70B", 80, 80 * 2 * 8 * 128 * 2, 70.6e9, 4 * 80 * 8192, ranks=4, efficiency=0.85),
    Model("DeepSeek-V3", 61, 61 * 576 * 2, 37e9, 2 * 61 * 128 * 320, ranks=8, efficiency=0.45, is_replicated=True),
)


def work_s(work: Work, model: Model, device: Device) -> float:
    operations = 2 * model.active * work.tokens + model.attention * work.pairs
    return operations / (device.peak * device.efficiency * model.efficiency * model.ranks)


def prefill_s(model: Model, device: Device, tokens: float) -> float:
    return work_s(Work(round(tokens), tokens * tokens / 2), model, device)


def rank_bytes(model: Model) -> float:
    """KV bytes per token that one device loads."""
    return model.kv_bytes / (1 if model.is_replicated else model.ranks)


def device_named(name: str) -> Device:
    return _named(name, {each.name: each for each in DEVICES}, "GPU")


def model_named(name: str) -> Model:
    return _named(name, {each.name: each for each in MODELS}, "model")


def _named(name: str, known: dict[str, T], kind: str) -> T:
    for each, value in known.items():
        if each.lower() == name.lower():
            return value
    raise ConfigurationError(f"unknown {kind} '{name}'; known: {', '.join(known)}")
