"""Never run in TensorRT-LLM: its connector's options, a JSON object. An unknown key or a bad value stops the start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sembase.settings import json_object, read_options, setting
from sembase.values import optional, path, positive
from semblend.integration.settings import TRTLLM_OPTIONS
from semblend.integration.shared_options import AdapterOptions, gate_options
from semblend.plan.gates import Gates

WHERE: Final = TRTLLM_OPTIONS
EXAMPLE: Final = '{"audit": "audit.jsonl"}'


@dataclass(frozen=True, slots=True)
class TrtllmOptions(AdapterOptions):
    """What a deployment may choose. Every field is a key, except ``gates``, whose own fields are."""

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
    return read_options(TrtllmOptions, json_object(text, WHERE, EXAMPLE), WHERE)
