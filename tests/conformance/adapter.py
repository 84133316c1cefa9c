"""What the suite asks of an adapter: serve requests one after the other and say, for each, what was promised and why.

A new adapter writes one driver of this shape, adds it to ``drivers.py`` and is done when the suite passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np

from semblend.contract import Event, Run

Shape = Literal["prefix", "moved"]
BOTH: Final[frozenset[Shape]] = frozenset({"prefix", "moved"})


def text(seed: int, length: int) -> list[int]:
    """Small vocabulary: the tiny models of the engines' own tests know no more."""
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, length)]


@dataclass(frozen=True, slots=True)
class Answer:
    """One request, from its look-up to its end.

    ``boundary`` is the engine's own exact prefix, ``promised`` what was claimed from there on, ``runs`` and
    ``computed`` how the promise was kept. ``confirmed``: tokens the backend said it loaded, None while it said nothing.
    """

    boundary: int = 0
    promised: int = 0
    runs: tuple[Run, ...] = ()
    computed: int = 0
    confirmed: int | None = None
    found: bool = False
    reason: str | None = None
    reused: int | None = None  # of adapters that do not tell their runs, as is the next
    exact_until: int | None = None
    recompute_fraction: float | None = None  # of a plan, where the adapter tells it

    @property
    def loaded(self) -> int:
        return sum(run.length for run in self.runs) if self.reused is None else self.reused

    @property
    def public_until(self) -> int:
        """Up to where a request that was blended may be public."""
        return min(run.target_start for run in self.runs) if self.exact_until is None else self.exact_until


class Driver(Protocol):
    """``loads``: the shapes this adapter materializes. Content elsewhere it may only find.

    ``tells_runs`` False: it says how much was loaded, not from where, and takes no injected fault (a running server).
    """

    name: str
    loads: frozenset[Shape]
    tells_runs: bool

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        """A request and its end; cold prefill makes it a donor and an entry of the engine's exact cache."""

    def forget_exact(self) -> None:
        """The engine's own cache is emptied; donors stay where the adapter keeps them apart."""

    def forget_donors(self) -> None: ...
    def break_look_up(self, broken: bool) -> None:
        """Whatever the adapter searches with raises from now on, or works again."""

    def donor_tokens(self, donor_id: str) -> Sequence[int]: ...
    def events(self) -> Sequence[Event]:
        """Everything reported so far, read back from where it was written if it was written."""

    def close(self) -> None: ...
