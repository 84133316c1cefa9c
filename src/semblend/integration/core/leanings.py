"""The leaning of the donors that a worker holds: measured slice by slice, dropped with its donor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Run, TokenRange
from semblend.integration.core.probes import attention_by_part, far_layers
from semblend.plan.leaning import Leaning, kept_before, leaning_layers, lost_context, pack, part_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semblend.integration.core.open_request import OpenRequest


class Leanings:
    """At most 256 bytes per token, 64 at 1K tokens. A donor whose slices are not all there has none."""

    def __init__(self) -> None:
        self._made: dict[str, Leaning] = {}
        self._begun: dict[str, tuple[Leaning, int]] = {}  # and the tokens measured so far

    def measure(self, request: OpenRequest, donor_id: str, start: int, ids: NDArray[np.int64], tokens: int) -> None:
        """The next slice of a donor of ``tokens``, which ``request`` holds from its first token on."""
        size, part = part_tokens(tokens), TokenRange(start, start + len(ids))
        if part.start == 0:
            self._made.pop(donor_id, None)
            rows = np.zeros((tokens, -(-tokens // size)), np.uint8)
            self._begun[donor_id] = (Leaning(size, rows, np.zeros(tokens, np.uint32)), 0)
        leaning, measured = self._begun.get(donor_id, (None, -1))
        if leaning is None or measured != part.start:
            self._begun.pop(donor_id, None)  # a slice of it was not measured
            return
        del self._begun[donor_id]
        far = far_layers(request)
        attention = attention_by_part(request, part, [far[at] for at in leaning_layers(len(far))], size)
        leaning.rows[part.start : part.end, : attention.shape[1]] = pack(attention)
        leaning.token_ids[part.start : part.end] = ids
        if part.end == tokens:
            self._made[donor_id] = leaning
        else:
            self._begun[donor_id] = (leaning, part.end)

    def of(self, runs: Sequence[Run], ids: NDArray[np.int64], start: int) -> NDArray[np.float32] | None:
        """By prompt position, up to the end of the last run; None if any donor of the runs has no leaning.

        ``ids`` are the recipient's from ``start`` on: what is before ``start`` is taken for the donors' own prefix.
        """
        if not runs or any(run.donor_id not in self._made for run in runs):
            return None
        kept = [kept_before(run, self._made[run.donor_id], ids, start) for run in runs]
        whole = [
            replace(
                run, donor_start=run.donor_start - more, target_start=run.target_start - more, length=run.length + more
            )
            for run, more in zip(runs, kept, strict=True)
        ]
        found = np.zeros(max(run.target_end for run in runs), np.float32)
        for run, more in zip(runs, kept, strict=True):
            lost = lost_context(run, whole, start)
            lost[run.donor_start - more :] = False
            leaning = self._made[run.donor_id]
            found[run.target_start : run.target_end] = leaning.on(lost, run.donor_start, run.length)
        return found

    def drop(self, donor_id: str) -> None:
        self._made.pop(donor_id, None)
        self._begun.pop(donor_id, None)
