"""The planner's gates as options: their rows in the table of every adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembase.settings import section
from sembase.values import Parser, count, fraction, positive
from semblend.plan.gates import Gates

_ROWS: Final[Mapping[str, tuple[Parser[Any], str]]] = {
    "min_run_tokens": (
        positive,
        "Shortest run of equal tokens to reuse. Runs shorter than 64 tokens are not always found.",
    ),
    "min_reuse_ratio": (
        fraction,
        "Minimum fraction of the tokens beyond the exact prefix that a plan must reuse; smaller plans are declined.",
    ),
    "boundary_recompute_tokens": (
        count,
        "Tokens recomputed at the start of each reused run. The number shrinks with the fraction of the run's context "
        "that differs.",
    ),
    "max_context_share": (
        fraction,
        "Maximum mean fraction of differing context; runs above it are not reused.",
    ),
    "min_prompt_tokens": (positive, "Minimum prompt length; shorter prompts are not looked up."),
    "boundary_multiple_tokens": (
        positive,
        "Reused runs start and end at multiples of this position in the recipient, rounded inward, so that reuse "
        "reveals no finer boundary.",
    ),
}


def gate_options(defaults: Gates, *names: str) -> Any:
    """The field ``gates`` of an adapter's options: ``names`` are the gates that a deployment may set."""
    return section(defaults, {name: _ROWS[name] for name in names})
