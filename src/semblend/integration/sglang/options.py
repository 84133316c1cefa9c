"""The plug-in's options, from a JSON object. An unknown key or a bad value stops the start-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sembase.settings import json_object, other_default, read_options, setting
from sembase.values import positive, text
from semblend.integration.fleet_options import SharedPagesOptions, shared_pages_options
from semblend.integration.gpu_evidence import GpuOptions
from semblend.integration.settings import SGLANG_OPTIONS
from semblend.integration.sglang.support import VERIFIED_VERSION
from semblend.integration.shared_options import RepairPolicy, gate_options, repair_option
from semblend.plan.gates import ADAPTER_GATES, Gates

WHERE: Final = SGLANG_OPTIONS
EXAMPLE: Final = '{"min_run_tokens": 64}'


@dataclass(frozen=True, slots=True)
class SglangOptions(GpuOptions):
    """What a deployment may choose. Every field is a key, except ``gates`` and ``fleet``, whose own fields are."""

    # Each recomputed group is a row, which SGLang's CPU attention pads to the whole context: off by default.
    recompute_fraction: float | None = other_default(GpuOptions, "recompute_fraction", 0.0)
    min_donor_tokens: int = setting(
        128, positive, "Minimum number of tokens a request must add to the tree to become a donor."
    )
    max_holes: int = setting(
        64, positive, "Maximum number of gaps computed between reused runs; each is a row of one forward pass."
    )
    repair: RepairPolicy = repair_option()
    provider: str = setting(
        "",
        text,
        "`package.module:Class` of your own provider, which is constructed without arguments. Empty uses the planner.",
    )
    validated_version: str = setting(
        "",
        text,
        f"A version of SGLang other than {VERIFIED_VERSION} on which you have run the engine tests. With any other "
        "version, SGLang's own cache is used.",
    )
    fleet: SharedPagesOptions = shared_pages_options()
    gates: Gates = gate_options(
        ADAPTER_GATES,
        "min_run_tokens",
        "min_reuse_ratio",
        "min_inexact_tokens",
        "boundary_recompute_tokens",
        "max_context_share",
        "min_moved_tokens",
        "min_prompt_tokens",
    )


def parse_options(text: str) -> SglangOptions:
    """The options of a deployment, from a JSON object; an empty text means all defaults."""
    return read_options(SglangOptions, json_object(text, WHERE, EXAMPLE), WHERE)
