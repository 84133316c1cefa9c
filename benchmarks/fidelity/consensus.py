"""Several captures of a passage: their mean, or the one that suits the recipient best, instead of the only donor.

K is averaged at the recipient's positions, which equals averaging it without rotation: rotations are linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from semblend.integration.core.selective_fill import fill as fill_claim

if TYPE_CHECKING:
    from benchmarks.fidelity.captures import Captured
    from benchmarks.fidelity.rig import Rig
    from semblend.integration.vllm.commands import LoadCommand

DONOR = "donor"  # what the plan loads
Filler = Callable[["Rig", "LoadCommand", "Captured"], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Variant:
    """``kinds`` of captures it needs, besides the plan's donors."""

    fill: Filler
    kinds: tuple[str, ...] = ()


def accounts(command: LoadCommand, chosen: int, groups: int) -> dict[str, Any]:
    reused = sum(run.length for run in command.runs) - chosen
    return {"reused_tokens": reused, "computed_tokens": command.end - command.start - reused, "groups": groups}


def mean_of(*kinds: str) -> Variant:
    """The mean of K and of V over the captures of these kinds; a single kind is a choice of donor."""

    def fill(rig: Rig, command: LoadCommand, captured: Captured) -> dict[str, Any]:
        for place, run in enumerate(command.runs):
            parts = [rig.loaded(run) if kind == DONOR else captured.kinds[kind][place] for kind in kinds]
            mean = torch.stack([part.float() for part in parts]).mean(dim=0) if len(parts) > 1 else parts[0]
            rig.write(run, mean.to(rig.cache.dtype))
        filled = fill_claim(*rig.opened(command))
        return accounts(command, filled.recomputed_tokens, filled.groups)

    return Variant(fill, tuple(kind for kind in kinds if kind != DONOR))


_OTHERS = ("other0", "other1", "other2")
_DEEP = ("deep0", "deep1", "deep2", "deep3")
_SHUFFLED = ("shuffle0", "shuffle1", "shuffle2")
CONSENSUS: dict[str, Variant] = {
    **{kind: mean_of(kind) for kind in (DONOR, *_OTHERS, *_DEEP, *_SHUFFLED, "alone", "neighbour", "beside")},
    **{f"mean{count + 1}": mean_of(DONOR, *_OTHERS[:count]) for count in (1, 2, 3)},
    **{f"deep_mean{count}": mean_of(*_DEEP[:count]) for count in (2, 3, 4)},
    **{f"donor_deep{count + 1}": mean_of(DONOR, *_DEEP[:count]) for count in (1, 2, 3)},
    **{f"shuffle_mean{count}": mean_of(*_SHUFFLED[:count]) for count in (2, 3)},
    "everything": mean_of(DONOR, *_OTHERS, *_DEEP, *_SHUFFLED),
}
