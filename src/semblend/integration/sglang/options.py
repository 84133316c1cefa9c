"""The plug-in's options, from JSON: one table of keys, defaults and limits, refused early and by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from semblend.integration.fidelity_options import FidelityOptions, fidelity_rows
from semblend.integration.option_table import OptionsOf, flag, json_object, markdown_table, path, share, text, whole
from semblend.integration.settings import SGLANG_OPTIONS
from semblend.integration.sglang.support import VERIFIED_VERSION
from semblend.plan.gates import ADAPTER_GATES, Gates

WHERE: Final = SGLANG_OPTIONS
# The gates of the vLLM adapter, measured there with the same model; `make bench-sglang` shows them here.
DEFAULT_GATES: Final = ADAPTER_GATES
EXAMPLE: Final = '{"min_run_tokens": 64}'


@dataclass(frozen=True, slots=True)
class SglangOptions(FidelityOptions):
    """What a deployment may choose. Every field but ``gates`` is a key; the gate keys fill ``gates``."""

    # Each chosen stretch is a row, which the engine's own CPU attention pads to the whole context: not by default.
    select_share: float | None = 0.0
    index_bytes: int = 256 << 20
    min_donor_tokens: int = 128
    events: Path | None = None
    require_salt: bool = False
    second_sight: bool = True
    max_holes: int = 64
    recompute_all: bool = False
    provider: str = ""
    validated_version: str = ""
    gates: Gates = DEFAULT_GATES


_TABLE: Final = OptionsOf(SglangOptions(), DEFAULT_GATES)


OPTIONS: Final = (
    _TABLE.option(
        "index_bytes", whole(1 << 20), "Budget of the planner's index, in bytes; donor KV stays in the tree."
    ),
    _TABLE.option("min_donor_tokens", whole(1), "Requests that add fewer tokens to the tree do not become donors."),
    _TABLE.option(
        "events", path, "File the event stream is appended to, one JSON object per line; `null` writes none."
    ),
    _TABLE.option(
        "require_salt",
        flag,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    ),
    _TABLE.option(
        "second_sight",
        flag,
        "A passage first seen inside a blended request is served cold once when it comes again, "
        "and that request becomes its donor.",
    ),
    _TABLE.option(
        "max_holes", whole(1), "Most stretches computed between loaded runs; each is a row of one forward pass."
    ),
    _TABLE.option(
        "recompute_all",
        flag,
        "Diagnosis: claim as planned but load nothing and compute the whole claim in rows of the same forward pass. "
        "Answers must equal those of cold prefill.",
    ),
    *fidelity_rows(_TABLE),
    _TABLE.option(
        "provider",
        text,
        "`package.module:Class` of a provider of your own, made without arguments; empty takes the planner's.",
    ),
    _TABLE.option(
        "validated_version",
        text,
        f"A version of SGLang besides {VERIFIED_VERSION} on which you have run the engine tests; with any other the "
        "stock cache is built.",
    ),
    _TABLE.gate(
        "min_run_tokens",
        whole(1),
        "Shortest stretch of equal tokens worth loading; below 64 finding it is not guaranteed.",
    ),
    _TABLE.gate(
        "min_reuse_ratio", share, "Planned tokens over the tokens the exact prefix does not cover; less declines."
    ),
    _TABLE.gate(
        "boundary_recompute_tokens",
        whole(0),
        "First tokens of a run that are computed although they could be loaded; fewer where less context differs.",
    ),
    _TABLE.gate("max_context_share", share, "A run whose mean share of differing context is above this is not loaded."),
    _TABLE.gate("min_prompt_tokens", whole(1), "Shorter prompts are not looked up at all."),
)


def parse_options(text: str) -> SglangOptions:
    """The options of a deployment, from a JSON object; an empty text means all defaults."""
    return _TABLE.parsed(OPTIONS, json_object(text, WHERE, EXAMPLE), WHERE)


def reference_table() -> str:
    """The documentation of every key, as Markdown."""
    return markdown_table(OPTIONS)


assert _TABLE.covers(OPTIONS)
