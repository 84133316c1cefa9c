"""Further captures of a run's tokens: the same passage in other prompts. A kind and a run in, a prompt out.

In real traffic a popular passage has several donors. ``Captured`` holds the K and V of them, moved to the
recipient's positions: 23 KB per token and kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.fidelity.items import NEW, FidelityItem, FidelitySet
from benchmarks.vllm.texts import TokenIds

if TYPE_CHECKING:
    import torch

    from semblend.contract import Run

# ``other``: behind half a passage, as ``shallow donors`` are. ``deep``: as deep in its prompt as the recipient
# wants it. ``alone``: behind the instruction only. ``shuffle``: behind some of the recipient's other passages, never
# behind its own predecessor. ``neighbour``: behind that predecessor. ``beside``: the same, and as deep as wanted.
KINDS = (
    *("other0", "other1", "other2", "deep0", "deep1", "deep2", "deep3", "alone", "neighbour", "beside"),
    *("shuffle0", "shuffle1", "shuffle2"),
)
INSTRUCTIONS = (
    "Below is a document from the archive of our department. Somebody will ask you about it afterwards, so take note "
    "of dates, people and places while reading.\n\n",
    "System: you help an editor. The editor pastes a text and wants short, plain and honest replies in English.\n\n",
    "Hello! I copied something from the web for you. Please go through it carefully before my request comes.\n\n",
    "The following material is confidential. Summaries must not be longer than a paragraph unless asked.\n\n",
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """``start`` is where the run's tokens begin in it."""

    ids: TokenIds
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """One tensor [layers, 2, tokens, heads, head_dim] per run and kind, keys at the recipient's positions."""

    kinds: dict[str, tuple[torch.Tensor, ...]]


class Contexts:
    """Makes prompts around runs, from text of the same source as the item."""

    def __init__(self, items: FidelitySet) -> None:
        self._instructions = tuple(items.encode(text) for text in INSTRUCTIONS)
        self._head, self._fill = items.head, items.filler

    def prompt(self, kind: str, item: FidelityItem, runs: Sequence[Run], place: int) -> Prompt:
        run = runs[place]
        body = item.recipient[run.target_start : run.target_end]
        number = KINDS.index(kind)
        if item.case == NEW:
            before = self._instructions[number % len(self._instructions)]
        else:
            random = np.random.default_rng([number, item.number, place])
            before = (*self._head, *self._preceding(kind, item, runs, place, random))
        return Prompt((*before, *body), len(before))

    def _preceding(
        self, kind: str, item: FidelityItem, runs: Sequence[Run], place: int, random: np.random.Generator
    ) -> TokenIds:
        run = runs[place]
        room = max(0, run.target_start - len(self._head))
        # No other prompt has the recipient's instruction: only passages are shared.
        shared = item.recipient[max(runs[0].target_start, run.target_start - run.length) : run.target_start]
        if kind == "alone":
            return ()
        if kind == "neighbour":
            return shared
        if kind == "beside":
            return (*self._fill(item, max(0, room - len(shared)), random), *shared)
        if kind.startswith("shuffle"):
            return _shuffled(item, runs, place, random)
        return self._fill(item, room if kind.startswith("deep") else max(64, run.length // 2), random)


def _shuffled(item: FidelityItem, runs: Sequence[Run], place: int, random: np.random.Generator) -> TokenIds:
    """At least one other run, in any order; its own predecessor may be among them, but not the last of them."""
    others = random.permutation([other for other in range(len(runs)) if other != place]).tolist()
    before = others[: int(random.integers(1, len(others) + 1))] if others else []
    if before and before[-1] == place - 1:
        before = before[::-1] if len(before) > 1 else [others[-1]]
    parts = (item.recipient[runs[other].target_start : runs[other].target_end] for other in before)
    return tuple(token for part in parts for token in part)
