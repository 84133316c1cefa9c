"""``kv_connector_extra_config`` into typed options: one table of keys, defaults and limits, refused early and by name.

Called once per process by the connector; the reference page is generated from the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from semblend.integration.fidelity_options import FidelityOptions, fidelity_rows
from semblend.integration.option_table import (
    OptionsOf,
    flag,
    markdown_table,
    one_of,
    path,
    share,
    whole,
)
from semblend.plan.gates import ADAPTER_GATES, Gates

CapturePolicy = Literal["all", "sampled", "hinted"]

DEFAULT_GATES: Final = ADAPTER_GATES


@dataclass(frozen=True, slots=True)
class ConnectorOptions(FidelityOptions):
    """What a deployment may choose. Every field but ``gates`` is a key; the gate keys fill ``gates``."""

    host_bytes: int = 2 << 30
    index_bytes: int = 256 << 20
    capture: CapturePolicy = "all"
    capture_share: float = 0.1
    min_capture_tokens: int = 128
    capture_step_tokens: int = 2048
    events: Path | None = None
    require_salt: bool = False
    study: bool = True
    second_sight: bool = True
    recompute_all: bool = False
    gates: Gates = DEFAULT_GATES


_TABLE: Final = OptionsOf(ConnectorOptions(), DEFAULT_GATES)


OPTIONS: Final = (
    _TABLE.option("host_bytes", whole(1 << 20), "Budget of stored donor KV per worker, in bytes."),
    _TABLE.option("index_bytes", whole(1 << 20), "Budget of the planner's index, in bytes."),
    _TABLE.option(
        "capture",
        one_of("all", "sampled", "hinted"),
        'Which requests become donors: `"all"`, `"sampled"` (a share of them) or `"hinted"` (those that ask for it).',
    ),
    _TABLE.option("capture_share", share, 'Share of requests captured under `"sampled"`.'),
    _TABLE.option("min_capture_tokens", whole(1), "Shorter prompts never become donors."),
    _TABLE.option("capture_step_tokens", whole(1), "Most tokens copied out of the engine's cache per engine step."),
    _TABLE.option(
        "events", path, "File the event stream is appended to, one JSON object per line; `null` writes none."
    ),
    _TABLE.option(
        "require_salt",
        flag,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    ),
    _TABLE.option(
        "study",
        flag,
        "Passages first seen inside a blended request are computed once more, alone, while the engine is idle, "
        "and become a donor.",
    ),
    _TABLE.option(
        "second_sight",
        flag,
        "A passage that could not be studied is served cold once when it comes again, "
        "and that request becomes its donor.",
    ),
    _TABLE.option(
        "recompute_all",
        flag,
        "Diagnosis: claim as planned but load nothing and compute the whole claim by the sparse forward. "
        "Answers must equal those of cold prefill.",
    ),
    *fidelity_rows(_TABLE),
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
    _TABLE.gate(
        "boundary_multiple_tokens",
        whole(1),
        "Runs begin and end at multiples of this in the recipient, rounded inward: reuse reveals no finer border.",
    ),
)


def parse_options(extra: Mapping[str, Any]) -> ConnectorOptions:
    """The options of a deployment. Anything unknown or out of range stops the start-up with what to write instead."""
    return _TABLE.parsed(OPTIONS, extra, "kv_connector_extra_config")


def reference_table() -> str:
    """The documentation of every key, as Markdown."""
    return markdown_table(OPTIONS)


assert _TABLE.covers(OPTIONS)
