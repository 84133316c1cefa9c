"""What donor memory holds, from facts of published model configurations: a table for docs/operate/sizing.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30
HELD_GIB: Final = (2, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class KvShape:
    """``latent`` values per token and layer take the place of K and V heads (MLA); then heads and head size are 0."""

    name: str
    layers: int
    kv_heads: int
    head_size: int
    latent: int = 0


MODELS: Final = (
    KvShape("SmolLM2-135M", 30, 3, 64),
    KvShape("Llama-3.2-1B", 16, 8, 64),
    KvShape("Qwen2.5-7B", 28, 4, 128),
    KvShape("Mistral-7B", 32, 8, 128),
    KvShape("Llama-3.1-8B", 32, 8, 128),
    KvShape("Qwen3-8B", 36, 8, 128),
    KvShape("gpt-oss-20b", 24, 8, 64),
    KvShape("Qwen3-30B-A3B", 48, 4, 128),
    KvShape("Qwen3-32B", 64, 8, 128),
    KvShape("Llama-3.3-70B", 80, 8, 128),
    KvShape("gpt-oss-120b", 36, 8, 64),
    KvShape("DeepSeek-V3 (MLA)", 61, 0, 0, latent=576),
)


def kv_bytes_per_token(shape: KvShape, value_bytes: int = 2) -> int:
    """Of all layers and all ranks."""
    values = shape.latent or 2 * shape.kv_heads * shape.head_size
    return shape.layers * values * value_bytes


def tokens_held(host_bytes: int, shape: KvShape, value_bytes: int = 2) -> int:
    return host_bytes // kv_bytes_per_token(shape, value_bytes)


def reference_table() -> str:
    head = ["model", "bytes per token", *(f"tokens in {gib} GiB" for gib in HELD_GIB), "a prompt of 32K takes"]
    rows = [head, ["---"] * len(head)]
    for shape in MODELS:
        held = (f"{tokens_held(gib * GIB, shape):,}" for gib in HELD_GIB)
        prompt = f"{32_768 * kv_bytes_per_token(shape) / GIB:.1f} GiB"
        rows.append([shape.name, f"{kv_bytes_per_token(shape):,}", *held, prompt])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
