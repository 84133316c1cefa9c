"""Loading KV beside prefilling it, on paper: devices and models in, predicted break-even and time to first token out.

Nothing here was measured on a GPU. Prefill is arithmetic (two operations per active parameter and token, plus causal
attention) at a fraction of the device's peak; a load is bytes over the rate of the link, plus a fixed overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from semestimate.hardware import DEVICES, MODELS, Device, Model, prefill_s, rank_bytes

PROMPT_TOKENS: Final = 8192
REUSED: Final = 0.85
OVERHEADS_MS: Final = (1.0, 5.0)
GAP_PENALTY: Final = 1.15  # gaps are computed by an eager forward pass of several short sequences
PAGEABLE_BYTES: Final = 6e9  # per second, through the driver's own staging buffer
LAUNCH_S: Final = 5e-6
RUNS: Final = 8
LAUNCHES_PER_LAYER: Final = 10  # per run, counted on the strict pretend device


def break_even_tokens(model: Model, device: Device, overhead_s: float) -> float:
    """Reused tokens from which loading beats computing them in a prompt of ``PROMPT_TOKENS``; infinite if never."""
    saved = prefill_s(model, device, PROMPT_TOKENS) / PROMPT_TOKENS - rank_bytes(model) / device.host_link
    return overhead_s / saved if saved > 0 else inf


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Predicted seconds to the first token of a prompt of which ``REUSED`` is loaded."""

    cold: float
    by_stream: float  # pinned memory, one launch per group of layers, copies beside the gaps' forward pass
    directly: float  # pageable copies, run by run and layer by layer, before the forward pass


def first_token(model: Model, device: Device, overhead_s: float) -> FirstToken:
    cold = prefill_s(model, device, PROMPT_TOKENS)
    gaps = cold * (1 - REUSED) * GAP_PENALTY
    loaded = PROMPT_TOKENS * REUSED * rank_bytes(model)
    launches = RUNS * model.layers * LAUNCHES_PER_LAYER * LAUNCH_S
    return FirstToken(
        cold,
        max(gaps, loaded / device.host_link) + overhead_s,
        gaps + loaded / PAGEABLE_BYTES + launches + overhead_s,
    )


def reference_table() -> str:
    """Markdown for the reference page."""
    low, high = OVERHEADS_MS
    lines = [
        f"| device | model | KV per token and GPU | cold prefill | break-even at {low:.0f} ms | at {high:.0f} ms "
        "| TTFT by stream | TTFT directly |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for device in DEVICES:
        for model in MODELS:
            even = [break_even_tokens(model, device, overhead / 1e3) for overhead in OVERHEADS_MS]
            found = first_token(model, device, high / 1e3)
            lines.append(
                f"| {device.name} | {model.label} | {rank_bytes(model) / 1024:.0f} KiB | {found.cold * 1e3:.0f} ms "
                f"| {_tokens(even[0])} | {_tokens(even[1])} "
                f"| {found.by_stream * 1e3:.0f} ms | {found.directly * 1e3:.0f} ms |"
            )
    return "\n".join(lines) + "\n"


def _tokens(count: float) -> str:
    return "never" if count == inf else f"{count:.0f} tokens"
