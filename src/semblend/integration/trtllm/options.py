"""The connector's options, from a JSON object. An unknown key or a bad value stops the start-up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from sembase.settings import json_object, read_options, setting
from sembase.values import one_of, optional, path, positive, size, text
from semblend.integration.settings import TRTLLM_OPTIONS
from semblend.integration.shared_options import AdapterOptions, gate_options
from semblend.plan.gates import Gates

WHERE: Final = TRTLLM_OPTIONS
EXAMPLE: Final = '{"audit": "audit.jsonl"}'


@dataclass(frozen=True, slots=True)
class TrtllmOptions(AdapterOptions):
    """What a deployment may choose. Every field is a key, except ``gates``, whose own fields are."""

    materialization: str = setting(
        "off",
        one_of("off", "exact_prefix"),
        "`off` searches and reports. `exact_prefix` also loads donor KV that continues the exact prefix at the same "
        "positions; needs `validated_version` and one rank.",
    )
    validated_version: str = setting(
        "",
        text,
        "Version of TensorRT-LLM on which you have validated loading. With any other version every look-up declines as "
        "`validation_failure`.",
    )
    host_bytes: int = setting(
        1 << 30,
        size(1 << 20),
        'Host memory for donor KV, in bytes or as a size such as `"8GiB"`; used with `exact_prefix` only.',
    )
    min_donor_tokens: int = setting(
        128, positive, "Minimum number of new tokens a prompt must bring to become a donor."
    )
    audit: Path | None = setting(
        None,
        optional(path),
        "File of the audit, one JSON object per line. `kvmend bench summarize-engine-events --engine trtllm` reads it.",
    )
    gates: Gates = gate_options(Gates(), "min_run_tokens", "min_reuse_ratio", "min_prompt_tokens")


def parse_options(text: str) -> TrtllmOptions:
    """The options of a deployment, from a JSON object; an empty text means all defaults."""
    options = read_options(TrtllmOptions, json_object(text, WHERE, EXAMPLE), WHERE)
    if options.materialization != "off" and not options.validated_version:
        raise ConfigurationError(
            f"{WHERE}: materialization is experimental; name in validated_version the TensorRT-LLM version on which "
            "you have compared answers with and without it"
        )
    return options
