"""The connector's options, from JSON: one table of keys, defaults and limits, refused early and by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from semblend.integration.option_table import (
    OptionsOf,
    flag,
    json_object,
    markdown_table,
    one_of,
    path,
    share,
    text,
    whole,
)
from semblend.integration.settings import TRTLLM_OPTIONS
from semblend.plan.gates import Gates

WHERE: Final = TRTLLM_OPTIONS
DEFAULT_GATES: Final = Gates()
EXAMPLE: Final = '{"audit": "audit.jsonl"}'


@dataclass(frozen=True, slots=True)
class TrtllmOptions:
    """What a deployment may choose. Every field but ``gates`` is a key; the gate keys fill ``gates``."""

    materialization: str = "off"
    validated_version: str = ""
    index_bytes: int = 256 << 20
    host_bytes: int = 1 << 30
    min_donor_tokens: int = 128
    audit: Path | None = None
    events: Path | None = None
    require_salt: bool = False
    gates: Gates = DEFAULT_GATES


_TABLE: Final = OptionsOf(TrtllmOptions(), DEFAULT_GATES)


OPTIONS: Final = (
    _TABLE.option(
        "materialization",
        one_of("off", "exact_prefix"),
        "`off` searches and reports. `exact_prefix` also loads donor KV that continues the exact prefix at the same "
        "positions; needs `validated_version` and one rank.",
    ),
    _TABLE.option(
        "validated_version",
        text,
        "Version of TensorRT-LLM on which you have validated loading; with any other every look-up declines as "
        "`validation_failure`.",
    ),
    _TABLE.option("index_bytes", whole(1 << 20), "Budget of the planner's index, in bytes."),
    _TABLE.option(
        "host_bytes", whole(1 << 20), "Budget of donor KV in host memory, in bytes; used with `exact_prefix` only."
    ),
    _TABLE.option("min_donor_tokens", whole(1), "Prompts that bring fewer new tokens do not become donors."),
    _TABLE.option(
        "audit", path, "File of the audit, one JSON object per line (`sembench ... --engine trtllm` reads it)."
    ),
    _TABLE.option("events", path, "File of the event stream (`semblend.event.v1`), one JSON object per line."),
    _TABLE.option(
        "require_salt",
        flag,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    ),
    _TABLE.gate(
        "min_run_tokens",
        whole(1),
        "Shortest stretch of equal tokens worth reporting; below 64 finding it is not guaranteed.",
    ),
    _TABLE.gate(
        "min_reuse_ratio", share, "Planned tokens over the tokens the exact prefix does not cover; less declines."
    ),
    _TABLE.gate("min_prompt_tokens", whole(1), "Shorter prompts are not looked up at all."),
)


def parse_options(text: str) -> TrtllmOptions:
    """The options of a deployment, from a JSON object; an empty text means all defaults."""
    options = _TABLE.parsed(OPTIONS, json_object(text, WHERE, EXAMPLE), WHERE)
    if options.materialization != "off" and not options.validated_version:
        raise ConfigurationError(
            f"{WHERE}: materialization is experimental; name in validated_version the TensorRT-LLM version on which "
            "you have compared answers with and without it"
        )
    return options


def reference_table() -> str:
    """The documentation of every key, as Markdown."""
    return markdown_table(OPTIONS)


assert _TABLE.covers(OPTIONS)
