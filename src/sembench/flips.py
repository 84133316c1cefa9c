"""Rows -> what reuse did to answers, per class (dataset and transform), beside the noise floor.

Scores are compared over every served pair: clean, and with confirmed reuse if the backend reported. Flips are counted
over *answerable* pairs alone, those whose cold answer is right. Some of these were right by chance, so a second run
loses a few of them without any reuse: the floor, a cold run of the same items in chunks of another size, shows how
many. A flip is beyond the floor if the floor's answer to the same item is right. Stale answers, which an earlier
revision of the document would get, are counted over every served pair that has a revision, whether cold is right or
not, unless the cold answer is stale, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from sembench.metrics.rows import ArmRow, RequestRow, cold_arm, is_clean, is_reused, pairs_of
from sembench.report.estimates import Estimate, bootstrap, wilson
from sembench.scoring.words import f1, words_of

ALL: Final = "all"
CONTROLS: Final = frozenset({"unread_document"})
"""Transforms whose answers are not expected to be right; like negative controls they are in no total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerClass:
    """``pairs`` are clean, ``served`` of them with reuse. ``cold`` and ``ours`` are mean scores of the served,
    ``change`` is their mean difference, ``exact_*`` how many have a score of 1. ``same`` answers read like cold's;
    ``f1_to_cold`` compares their words.

    Of ``answerable`` pairs ``flips`` are wrong when served. Of ``revised`` pairs ``stale`` have the answer of the
    earlier revision when served and another one cold.
    ``floor_*`` are the same figures of the second cold run over ``floor_n`` of the served pairs; None without one.
    """

    task: str
    transform: str
    pairs: int
    served: int
    cold: float | None
    ours: float | None
    change: Estimate | None
    exact_cold: int
    exact_ours: int
    same: int
    f1_to_cold: float | None
    answerable: int
    flips: int
    flips_beyond_floor: int
    beyond_rate: Estimate | None
    revised: int
    stale: int | None
    stale_beyond_floor: int | None
    floor_n: int | None = None
    floor_same: int | None = None
    floor_answerable: int | None = None
    floor_flips: int | None = None
    floor_stale: int | None = None

    @property
    def is_control(self) -> bool:
        return self.transform in CONTROLS

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def floor_arms(rows: Iterable[RequestRow]) -> dict[str, ArmRow]:
    """The cold arms of the floor by item; contaminated and failed ones are left out."""
    return {row.item_id: arm for row in rows if (arm := cold_arm(row)) is not None}


def answer_classes(
    rows: Sequence[RequestRow],
    floor: Mapping[str, ArmRow] | None = None,
    *,
    block_size: int | None = None,
    seed: int = 0,
) -> list[AnswerClass]:
    """One per dataset and transform in the order of the rows, then one over all that are not controls."""
    groups: dict[tuple[str, str], list[RequestRow]] = {}
    for row in pairs_of(rows):
        if not row.negative_control and is_clean(row, block_size) and _is_marked(row):
            groups.setdefault((row.dataset, row.transform), []).append(row)
    found = [_figures(task, transform, own, floor, seed) for (task, transform), own in groups.items()]
    counted = [row for (_, transform), own in groups.items() if transform not in CONTROLS for row in own]
    if len(found) > 1 and counted:
        found.append(_figures(ALL, ALL, counted, floor, seed))
    return found


def lost_items(rows: Sequence[RequestRow], *, block_size: int | None = None) -> frozenset[str]:
    """Items whose right answer reuse made wrong, or whose answer it made stale: all that a floor decides."""
    served = [row for row in pairs_of(rows) if is_clean(row, block_size) and is_reused(row) is not False]
    return frozenset(row.item_id for row in served if _is_flip(*_arms(row)) or _is_stale(*_arms(row)))


def _figures(
    task: str, transform: str, rows: Sequence[RequestRow], floor: Mapping[str, ArmRow] | None, seed: int
) -> AnswerClass:
    served = [(row.item_id, *_arms(row)) for row in rows if is_reused(row) is not False]
    scores = [
        (cold.answer_score, warm.answer_score)
        for _, cold, warm in served
        if cold.answer_score is not None and warm.answer_score is not None
    ]
    answerable = [item for item, cold, _ in served if cold.answer_right]
    flips = [item for item, cold, warm in served if _is_flip(cold, warm)]
    revised = [item for item, _, warm in served if warm.answer_stale is not None]
    stale = [item for item, cold, warm in served if _is_stale(cold, warm)]
    known = {} if floor is None else {item: floor[item] for item, _, _ in served if item in floor}
    beyond = [item for item in flips if item not in known or known[item].answer_right is not False]
    kept_stale = [item for item in stale if item not in known or not known[item].answer_stale]
    closeness = [_f1_between(cold, warm) for _, cold, warm in served]
    return AnswerClass(
        task=task,
        transform=transform,
        pairs=len(rows),
        served=len(served),
        cold=_mean(cold for cold, _ in scores),
        ours=_mean(ours for _, ours in scores),
        change=_mean_change([ours - cold for cold, ours in scores], seed),
        exact_cold=sum(cold == 1.0 for cold, _ in scores),
        exact_ours=sum(ours == 1.0 for _, ours in scores),
        same=sum(_is_same(cold, warm) for _, cold, warm in served),
        f1_to_cold=_mean(closeness),
        answerable=len(answerable),
        flips=len(flips),
        flips_beyond_floor=len(beyond),
        beyond_rate=wilson(len(beyond), len(answerable)),
        revised=len(revised),
        stale=len(stale) if revised else None,
        stale_beyond_floor=len(kept_stale) if revised else None,
        **({} if floor is None else _floor_figures(served, known, bool(revised))),
    )


def _floor_figures(
    served: Sequence[tuple[str, ArmRow, ArmRow]], known: Mapping[str, ArmRow], is_revised: bool
) -> dict[str, Any]:
    compared = [(cold, known[item]) for item, cold, _ in served if item in known]
    answerable = [again for cold, again in compared if cold.answer_right]
    return {
        "floor_n": len(compared),
        "floor_same": sum(_is_same(cold, again) for cold, again in compared),
        "floor_answerable": len(answerable),
        "floor_flips": sum(again.answer_right is False for again in answerable),
        "floor_stale": sum(again.answer_stale is True and not cold.answer_stale for cold, again in compared)
        if is_revised
        else None,
    }


def _arms(row: RequestRow) -> tuple[ArmRow, ArmRow]:
    if row.cold is None or row.warm is None:
        raise ValueError(f"{row.item_id} is not a pair")
    return row.cold, row.warm


def _is_flip(cold: ArmRow, warm: ArmRow) -> bool:
    return cold.answer_right is True and warm.answer_right is False


def _is_stale(cold: ArmRow, warm: ArmRow) -> bool:
    return warm.answer_stale is True and not cold.answer_stale


def _is_marked(row: RequestRow) -> bool:
    """False for results of versions that did not mark answers, and for pairs of two empty answers."""
    arms = _arms(row)
    return any(arm.answer_read is not None or arm.answer_score is not None for arm in arms)


def _is_same(cold: ArmRow, other: ArmRow) -> bool:
    if cold.answer_read is None and other.answer_read is None:
        return (cold.text or "").strip() == (other.text or "").strip()
    return cold.answer_read == other.answer_read


def _f1_between(cold: ArmRow, other: ArmRow) -> float:
    ours, known = (words_of(arm.answer_read or arm.text or "") for arm in (other, cold))
    return f1(ours, known) if ours or known else 1.0


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _mean_change(changes: Sequence[float], seed: int) -> Estimate | None:
    values = np.asarray(changes, dtype=np.float64)
    return bootstrap(len(values), lambda drawn: values[drawn].mean(axis=1), seed)
