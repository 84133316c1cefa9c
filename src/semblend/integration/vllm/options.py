"""``kv_connector_extra_config`` into typed options. An unknown key or a bad value stops the start-up.

Called once per process by the connector; the reference page is generated from the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sembase.settings import read_options, setting
from sembase.values import flag, fraction, one_of, positive, size
from semblend.integration.fleet_options import FleetOptions, fleet_options
from semblend.integration.gpu_evidence import GpuOptions
from semblend.integration.shared_options import RepairPolicy, gate_options, repair_option
from semblend.plan.gates import ADAPTER_GATES, Gates

CapturePolicy = Literal["all", "sampled", "hinted"]


@dataclass(frozen=True, slots=True)
class ConnectorOptions(GpuOptions):
    """What a deployment may choose. Every field is a key, except ``gates`` and ``fleet``, whose own fields are."""

    host_bytes: int = setting(
        2 << 30, size(1 << 20), 'Host memory for donor KV per worker, in bytes or as a size such as `"8GiB"`.'
    )
    capture: CapturePolicy = setting(
        "all",
        one_of("all", "sampled", "hinted"),
        'Which requests become donors: `"all"`, `"sampled"` (a fraction of them) or `"hinted"` (those that ask '
        "for it).",
    )
    capture_fraction: float = setting(0.1, fraction, 'Fraction of requests captured under `"sampled"`.')
    min_capture_tokens: int = setting(128, positive, "Minimum prompt length of a donor.")
    capture_step_tokens: int = setting(
        2048, positive, "Maximum tokens copied out of the engine's cache per engine step."
    )
    cached_donors: bool = setting(
        True, flag, "Load donors out of the engine's own cache as long as their blocks are there."
    )
    prefill_passages: bool = setting(
        True,
        flag,
        "While the engine is idle, prefill passages that first appeared in a blended request again, in isolation, "
        "so that they become donors.",
    )
    repair: RepairPolicy = repair_option()
    fleet: FleetOptions = fleet_options()
    gates: Gates = gate_options(
        ADAPTER_GATES,
        "min_run_tokens",
        "min_reuse_ratio",
        "min_inexact_tokens",
        "boundary_recompute_tokens",
        "max_context_share",
        "min_moved_tokens",
        "min_prompt_tokens",
        "boundary_multiple_tokens",
    )


def parse_options(extra: Mapping[str, Any]) -> ConnectorOptions:
    """The options of a deployment, from the JSON object vLLM passes on."""
    return read_options(ConnectorOptions, extra, "kv_connector_extra_config")
