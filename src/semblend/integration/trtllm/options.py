"""The connector's options, from JSON: one table of keys, defaults and limits, refused early and by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from semblend.errors import ConfigurationError
from semblend.integration.option_table import Option, markdown_table, one_of, parse_table, path, share, whole
from semblend.integration.option_table import flag as flag_of
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


_DEFAULTS: Final = TrtllmOptions()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("write a string")
    return value.strip()


def _option(name: str, read: Callable[[Any], Any], description: str) -> Option:
    return Option(name, read, getattr(_DEFAULTS, name), description)


def _gate(name: str, read: Callable[[Any], Any], description: str) -> Option:
    return Option(name, read, getattr(_DEFAULTS.gates, name), description, is_gate=True)


OPTIONS: Final = (
    _option(
        "materialization",
        one_of("off", "exact_prefix"),
        "`off` searches and reports. `exact_prefix` also loads donor KV that continues the exact prefix at the same "
        "positions; needs `validated_version` and one rank.",
    ),
    _option(
        "validated_version",
        _text,
        "Version of TensorRT-LLM on which you have validated loading; with any other every look-up declines as "
        "`validation_failure`.",
    ),
    _option("index_bytes", whole(1 << 20), "Budget of the planner's index, in bytes."),
    _option(
        "host_bytes", whole(1 << 20), "Budget of donor KV in host memory, in bytes; used with `exact_prefix` only."
    ),
    _option("min_donor_tokens", whole(1), "Prompts that bring fewer new tokens do not become donors."),
    _option("audit", path, "File of the audit, one JSON object per line (`sembench ... --engine trtllm` reads it)."),
    _option("events", path, "File of the event stream (`semblend.event.v1`), one JSON object per line."),
    _option(
        "require_salt",
        flag_of,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    ),
    _gate(
        "min_run_tokens",
        whole(1),
        "Shortest stretch of equal tokens worth reporting; below 64 finding it is not guaranteed.",
    ),
    _gate("min_reuse_ratio", share, "Planned tokens over the tokens the exact prefix does not cover; less declines."),
    _gate("min_prompt_tokens", whole(1), "Shorter prompts are not looked up at all."),
)


def parse_options(text: str) -> TrtllmOptions:
    """The options of a deployment, from a JSON object; an empty text means all defaults."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{WHERE}: not JSON ({error}); write an object such as {EXAMPLE}") from None
    if not isinstance(given, dict):
        raise ConfigurationError(f"{WHERE}: write a JSON object, not {type(given).__name__}")
    gates: dict[str, Any] = {field.name: getattr(_DEFAULTS.gates, field.name) for field in fields(Gates)}
    values = parse_table(OPTIONS, given, WHERE)
    gates |= {name: values.pop(name) for name in list(values) if name in gates}
    options = TrtllmOptions(**values, gates=Gates(**gates))
    if options.materialization != "off" and not options.validated_version:
        raise ConfigurationError(
            f"{WHERE}: materialization is experimental; name in validated_version the TensorRT-LLM version on which "
            "you have compared answers with and without it"
        )
    return options


def reference_table() -> str:
    """The documentation of every key, as Markdown."""
    return markdown_table(OPTIONS)


assert {option.name for option in OPTIONS if not option.is_gate} == {
    field.name for field in fields(TrtllmOptions) if field.name != "gates"
}
