"""Gates on answers: flips and stale answers beyond the floor of two cold runs, and the loss of the worst class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.flips import ALL, AnswerClass, answer_classes, floor_arms
from sembench.gates.other_run import OtherRun, mismatches
from sembench.gates.verdict import Measured, Verdict, number
from sembench.metrics.rows import RequestRow

FLIPS: Final = "answer_flips_beyond_floor"
STALE: Final = "stale_answers_beyond_floor"
LOSS: Final = "answer_score_loss_of_worst_class"
FLOOR_SETTINGS: Final = ("model", "endpoint", "recipient_max_tokens", "quality_threshold")


def judge_answers(
    verdict: Verdict, result: Mapping[str, Any], rows: Sequence[RequestRow], floor: OtherRun | None
) -> None:
    """Without a floor every flip and every stale answer counts. Unread documents and negative controls never do."""
    if floor is not None:
        for message in mismatches(result, floor, "floor", FLOOR_SETTINGS):
            verdict.fail("floor_result", FLIPS, "a cold run of the same requests", message)
    asked = verdict.request
    limits = (asked.max_answer_flips_beyond_floor, asked.max_stale_answers_beyond_floor, asked.max_answer_score_loss)
    if floor is None and limits == (None, None, None):
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
    if asked.max_answer_flips_beyond_floor is not None:
        limit = asked.max_answer_flips_beyond_floor
        lost, of = sum(each.flips_beyond_floor for each in counted), sum(each.answerable for each in counted)
        _decide_count(verdict, "max_answer_flips_beyond_floor", FLIPS, lost, of, limit)
    if asked.max_stale_answers_beyond_floor is not None:
        limit = asked.max_stale_answers_beyond_floor
        revised = [each for each in counted if each.stale_beyond_floor is not None]
        lost, of = sum(each.stale_beyond_floor or 0 for each in revised), sum(each.revised for each in revised)
        _decide_count(verdict, "max_stale_answers_beyond_floor", STALE, lost, of, limit)
    if asked.max_answer_score_loss is not None:
        _judge_loss(verdict, counted, asked.max_answer_score_loss)


def _decide_count(verdict: Verdict, gate: str, metric: str, lost: int, of: int, limit: int) -> None:
    found = Measured(lost, of, lost, of) if of else Measured(None)
    verdict.decide(gate, metric, found, lambda value: value <= limit, f"at most {limit}")


def _judge_loss(verdict: Verdict, classes: Sequence[AnswerClass], limit: float) -> None:
    """Every class must hold: a mean over all would hide the one that loses."""
    gate = "max_answer_score_loss"
    changes = {f"{each.task} {each.transform}": each.change for each in classes if each.change is not None}
    if not changes:
        verdict.decide(gate, LOSS, Measured(None), bool, f"at most {limit}")
        return
    losses = {name: _loss(change.low, change.value, verdict) for name, change in changes.items()}
    worst = max(losses, key=lambda name: losses[name])
    change = changes[worst]
    interval = None if change.low is None or change.high is None else (-change.high, -change.low)
    verdict.decide(
        gate,
        LOSS,
        Measured(-change.value, change.n, ci95=interval),
        lambda value: value <= limit,
        f"at most {limit}; {worst} is worst",
        judged=losses[worst],
    )


def _loss(low: float | None, value: float, verdict: Verdict) -> float:
    """The loss that is judged: of the mean or, with ``judge_interval``, at the unfavourable end of its interval."""
    return -low if verdict.request.judge_interval and low is not None else -value
