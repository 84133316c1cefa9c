"""The plug-in's options, from a JSON object. An unknown key or a bad value stops the start-up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sembase.settings import json_object, other_default, read_options, setting
from sembase.values import flag, optional, path, positive, text, whole
from semblend.integration.fidelity_options import FidelityOptions
from semblend.integration.gate_options import gate_options
from semblend.integration.settings import SGLANG_OPTIONS
from semblend.integration.sglang.support import VERIFIED_VERSION
from semblend.plan.gates import ADAPTER_GATES, Gates

WHERE: Final = SGLANG_OPTIONS
EXAMPLE: Final = '{"min_run_tokens": 64}'


@dataclass(frozen=True, slots=True)
class SglangOptions(FidelityOptions):
    """What a deployment may choose. Every field is a key, except ``gates``, whose own fields are."""

    # Each recomputed group is a row, which SGLang's CPU attention pads to the whole context: off by default.
    recompute_fraction: float | None = other_default(FidelityOptions, "recompute_fraction", 0.0)
    index_bytes: int = setting(
        256 << 20, whole(1 << 20), "Memory of the planner's index, in bytes. Donor KV stays in the radix tree."
    )
    min_donor_tokens: int = setting(
        128, positive, "Minimum number of tokens a request must add to the tree to become a donor."
    )
    events: Path | None = setting(
        None,
        optional(path),
        "File to which events are appended, one JSON object per line. `null` writes none.",
    )
    require_salt: bool = setting(
        False,
        flag,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    )
    refresh_on_repeat: bool = setting(
        True,
        flag,
        "Serve a passage that first appeared in a blended request cold once when it repeats, so that this request "
        "becomes its donor.",
        renamed_from=("second_sight",),
    )
    max_holes: int = setting(
        64, positive, "Maximum number of gaps computed between reused runs; each is a row of one forward pass."
    )
    recompute_all: bool = setting(
        False,
        flag,
        "Diagnosis: claim as planned, but load nothing and compute the whole claim in rows of the same forward pass. "
        "Answers must equal those of cold prefill.",
    )
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
    gates: Gates = gate_options(
        ADAPTER_GATES,
        "min_run_tokens",
        "min_reuse_ratio",
        "boundary_recompute_tokens",
        "max_context_share",
        "min_prompt_tokens",
    )


def parse_options(text: str) -> SglangOptions:
    """The options of a deployment, from a JSON object; an empty text means all defaults."""
    return read_options(SglangOptions, json_object(text, WHERE, EXAMPLE), WHERE)
