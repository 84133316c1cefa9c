"""Gates on answers: flips and stale answers beyond the floor of two cold runs, and the loss of the worst class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.flips import ALL, AnswerClass, answer_classes, floor_arms
from sembench.gates.other_run import OtherRun, mismatches
from sembench.gates.table import BY_NAME
from sembench.gates.verdict import Measured, Verdict, number
from sembench.metrics.rows import RequestRow

_FLIPS: Final = "max_answer_flips_beyond_floor"
_STALE: Final = "max_stale_answers_beyond_floor"
_LOSS: Final = "max_answer_score_loss"
FLOOR_SETTINGS: Final = ("model", "endpoint", "recipient_max_tokens", "quality_threshold")


def judge_answers(
    verdict: Verdict, result: Mapping[str, Any], rows: Sequence[RequestRow], floor: OtherRun | None
) -> None:
    """Without a floor every flip and every stale answer counts. Unread documents and negative controls never do."""
    if floor is not None:
        for message in mismatches(result, floor, "floor", FLOOR_SETTINGS):
            verdict.fail("floor_result", BY_NAME[_FLIPS].figure, "a cold run of the same requests", message)
    if floor is None and not any(gate in verdict.request.requested for gate in (_FLIPS, _STALE, _LOSS)):
        return
    size, seed = (number(result[part].get(name)) for part, name in (("config", "block_size"), ("run", "seed")))
    classes = answer_classes(
        rows,
        None if floor is None else floor_arms(floor.rows),
        block_size=None if size is None else int(size),
        seed=0 if seed is None else int(seed),
    )
    verdict.observed["answers"] = [each.as_json() for each in classes]
    counted = [each for each in classes if each.task != ALL and not each.is_control]
    lost, of = sum(each.flips_beyond_floor for each in counted), sum(each.answerable for each in counted)
    verdict.judge(_FLIPS, Measured(lost, of, lost, of) if of else Measured(None))
    revised = [each for each in counted if each.stale_beyond_floor is not None]
    lost, of = sum(each.stale_beyond_floor or 0 for each in revised), sum(each.revised for each in revised)
    verdict.judge(_STALE, Measured(lost, of, lost, of) if of else Measured(None))
    if _LOSS in verdict.request.requested:
        _judge_loss(verdict, counted)


def _judge_loss(verdict: Verdict, classes: Sequence[AnswerClass]) -> None:
    """Every class must hold: a mean over all would hide the one that loses."""
    changes = {f"{each.task} {each.transform}": each.change for each in classes if each.change is not None}
    if not changes:
        verdict.judge(_LOSS, Measured(None))
        return
    losses = {name: _loss(change.low, change.value, verdict) for name, change in changes.items()}
    worst = max(losses, key=lambda name: losses[name])
    change = changes[worst]
    interval = None if change.low is None or change.high is None else (-change.high, -change.low)
    found = Measured(-change.value, change.n, ci95=interval)
    verdict.judge(_LOSS, found, wanted=f"; {worst} is worst", judged=losses[worst])


def _loss(low: float | None, value: float, verdict: Verdict) -> float:
    """The loss that is judged: of the mean or, with ``judge_interval``, at the unfavourable end of its interval."""
    return -low if verdict.request.judge_interval and low is not None else -value
