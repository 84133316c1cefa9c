"""Options that adapters share: the planner's index and gates, the event file, requests without a salt, repair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sembase.settings import section, setting
from sembase.values import Parser, count, flag, fraction, one_of, optional, path, positive, size
from semblend.plan.gates import Gates
from semblend.plan.selection import MOVED_FRACTION

RepairPolicy = Literal["off", "idle", "likely"]
# While requests run, one slice in this many steps: of the times between their tokens 0.4 % are longer, so that the 99th
# percentile is still that of the other steps. At 128 it was not: with the engine's own slow steps, 1 % was reached.
BUSY_STEPS_PER_SLICE: Final = 256

_ROWS: Final[Mapping[str, tuple[Parser[Any], str]]] = {
    "min_run_tokens": (
        positive,
        "Shortest run of equal tokens to reuse. Runs shorter than 64 tokens are not always found.",
    ),
    "min_reuse_ratio": (
        fraction,
        "Minimum fraction of the tokens beyond the exact prefix that a plan must reuse; smaller plans are declined. "
        "With 0, plans are also served that would take longer than prefill (`not_worth`).",
    ),
    "min_inexact_tokens": (
        count,
        "Fewest tokens to reuse after differing context. With fewer, only runs whose context is the same are "
        "reused: a few inexact tokens save little and can change an answer that follows them closely.",
    ),
    "boundary_recompute_tokens": (
        count,
        "Tokens recomputed at the start of each reused run. The number shrinks with the fraction of the run's context "
        "that differs.",
    ),
    "max_context_share": (
        fraction,
        "Maximum mean fraction of differing context; runs above it are not reused, unless `min_moved_tokens` allows "
        "it.",
    ),
    "min_moved_tokens": (
        count,
        "Fewest tokens of a run that is reused whatever precedes it, such as a retrieved passage in another place. "
        f"Without `recompute_fraction`, {MOVED_FRACTION:g} of such a plan's reused tokens are recomputed; where "
        "no question follows to select them by, and with 0, `max_context_share` holds for every run. `answer_budgets` "
        "set it by what your model keeps.",
    ),
    "min_prompt_tokens": (positive, "Minimum prompt length; shorter prompts are not looked up."),
    "boundary_multiple_tokens": (
        positive,
        "Reused runs start and end at multiples of this position in the recipient, rounded inward, so that reuse "
        "reveals no finer boundary.",
    ),
}


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    index_bytes: int = setting(
        256 << 20, size(1 << 20), 'Memory of the planner\'s index, in bytes or as a size such as `"512MiB"`.'
    )
    events: Path | None = setting(
        None,
        optional(path),
        "File to which events (`semblend.event.v1`) are appended, one JSON object per line. `null` writes none.",
    )
    require_salt: bool = setting(
        False,
        flag,
        "Decline requests without `cache_salt` as `namespace_unknown` instead of treating them as one tenant.",
    )


def gate_options(defaults: Gates, *names: str) -> Any:
    """The field ``gates`` of an adapter's options: ``names`` are the gates that a deployment may set."""
    return section(defaults, {name: _ROWS[name] for name in names})


def repair_option() -> Any:
    """The field ``repair`` of an adapter that can make blended requests exact."""
    return setting(
        "off",
        one_of("off", "idle", "likely"),
        "Compute the inexact KV of a blended request again after its answer, so that the session's next turn is an "
        'exact prefix hit: `"off"`, `"idle"` (while no request runs) or `"likely"` (for sessions that are likely to '
        f"come back; while requests run, in one of {BUSY_STEPS_PER_SLICE} steps).",
    )
