"""Metrics of live requests as the client saw them: placement, failures, time to first token, quality of the answers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from sembench.metrics.base import Figure, Metric, Needs, fraction, fraction_of_requests, mean, percentile
from sembench.metrics.rows import ArmRow, RequestRow, cold_arm, is_clean, is_reused, pairs_of, speedup, warm_arm
from semblend.contract import Evidence, Outcome

Arm = Literal["cold", "warm"]
_SCORES: Final = {
    "token_recall": "token recall",
    "f1": "token F1",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match (or option letter)",
}


def _is_placed(row: RequestRow) -> bool | None:
    return None if row.route_outcome is None else row.route_outcome == Outcome.SEMANTIC_PLACEMENT


def _failed(rows: Sequence[RequestRow]) -> Figure | None:
    arms = [arm for row in rows for arm in (row.cold, row.warm) if arm is not None]
    return fraction(sum(arm.status != "ok" for arm in arms), len(arms), len(arms))


def _speedup(rows: Iterable[RequestRow]) -> Figure | None:
    ratios = [speedup(row) for row in rows if is_clean(row) and not row.negative_control]
    return Figure(statistics.median(ratios), n=len(ratios)) if ratios else None


def _arms(rows: Iterable[RequestRow], arm: Arm) -> list[ArmRow]:
    """Arms that may enter a figure: failed requests and pairs that are not clean are left out."""
    usable = cold_arm if arm == "cold" else warm_arm
    return [found for row in rows if (found := usable(row)) is not None]


def _ttft(arm: Arm, percent: int) -> Metric:
    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        return percentile((found.ttft_ms for found in _arms(rows, arm) if found.ttft_ms is not None), percent)

    return Metric(
        name=f"{arm}_ttft_ms_p{percent}",
        unit="ms",
        formula=f"{percent}th percentile (nearest rank) of the {arm} arms' time to the first token-bearing chunk",
        needs=(Needs.LIVE,),
        evidence=Evidence.MEASURED_LIVE,
        better="lower" if arm == "warm" else "neither",
        measure=measure,
    )


def _score(arm: Arm, score: str) -> Metric:
    """The score of one arm alone shows how good the model is, not what reuse did to it: hence the companion."""

    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        return mean(getattr(found, score) for found in _arms(rows, arm))

    return Metric(
        name=f"{arm}_{score}",
        unit="share",
        formula=f"sum of the {arm} answers' {_SCORES[score]} / scored {arm} answers",
        needs=(Needs.ANSWERS,),
        evidence=Evidence.MEASURED_LIVE,
        better="higher",
        measure=measure,
        companion=f"{'warm' if arm == 'cold' else 'cold'}_{score}",
    )


def _is_flipped(row: RequestRow) -> bool | None:
    if row.pair is None or not is_clean(row):
        return None
    return row.pair.answer_flip


LIVE_METRICS: Final = (
    # Requests the router placed by similarity. Placement is not reuse.
    Metric(
        name="semantic_placement_rate_by_request",
        unit="share",
        formula="requests whose route outcome is semantic_placement / requests with route metadata",
        needs=(Needs.ROUTE,),
        evidence=Evidence.MEASURED_LIVE,
        better="higher",
        measure=lambda rows: fraction_of_requests(rows, _is_placed),
    ),
    # Failed requests are in no other live figure, so their number must be visible.
    Metric(
        name="failed_request_rate",
        unit="share",
        formula="cold and warm arms that did not end ok / arms sent",
        needs=(Needs.LIVE,),
        evidence=Evidence.MEASURED_LIVE,
        better="lower",
        measure=_failed,
    ),
    # Cold arms that were not cold. Their pairs are excluded everywhere and counted here.
    Metric(
        name="contaminated_cold_arm_rate",
        unit="share",
        formula="cold arms with more than one block of cached tokens / cold arms whose cached tokens the server "
        "reported",
        needs=(Needs.LIVE,),
        evidence=Evidence.MEASURED_LIVE,
        better="lower",
        measure=lambda rows: fraction_of_requests(rows, lambda row: row.cold.contaminated if row.cold else None),
    ),
    *(_ttft(arm, percent) for arm in ("cold", "warm") for percent in (50, 95, 99)),
    # The whole traffic: every clean pair, requests without reuse included.
    Metric(
        name="blended_ttft_speedup_median",
        unit="ratio",
        formula="median of cold TTFT / warm TTFT over all clean pairs except negative controls",
        needs=(Needs.PAIRS,),
        evidence=Evidence.MEASURED_LIVE,
        better="higher",
        measure=lambda rows: _speedup(pairs_of(rows)),
    ),
    # Only requests with reuse, so it selects its own traffic and is never shown without the blended figure.
    Metric(
        name="hit_only_ttft_speedup_median",
        unit="ratio",
        formula="median of cold TTFT / warm TTFT over clean pairs with confirmed reuse, except negative controls",
        needs=(Needs.PAIRS, Needs.BACKEND),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: _speedup(filter(is_reused, pairs_of(rows))),
        companion="blended_ttft_speedup_median",
    ),
    Metric(
        name="quality_pass_rate",
        unit="share",
        formula="requests whose answer reaches the quality threshold / requests with a scored answer",
        needs=(Needs.ANSWERS,),
        evidence=Evidence.MEASURED_LIVE,
        better="higher",
        measure=lambda rows: fraction_of_requests(rows, lambda row: row.quality_pass),
    ),
    # Only answers with reuse: the ones in which reuse can have lowered the quality.
    Metric(
        name="reused_quality_pass_rate",
        unit="share",
        formula="quality_pass_rate over requests with confirmed reuse",
        needs=(Needs.ANSWERS, Needs.BACKEND),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="higher",
        measure=lambda rows: fraction_of_requests(filter(is_reused, rows), lambda row: row.quality_pass),
        companion="quality_pass_rate",
    ),
    *(_score(arm, score) for arm in ("cold", "warm") for score in _SCORES),
    Metric(
        name="answer_flip_rate",
        unit="share",
        formula="clean pairs whose warm answer differs from the cold one / clean pairs with both answers judged",
        needs=(Needs.PAIRS, Needs.ANSWERS),
        evidence=Evidence.MEASURED_LIVE,
        better="lower",
        measure=lambda rows: fraction_of_requests(rows, _is_flipped),
    ),
    Metric(
        name="reused_answer_flip_rate",
        unit="share",
        formula="answer_flip_rate over pairs with confirmed reuse",
        needs=(Needs.PAIRS, Needs.ANSWERS, Needs.BACKEND),
        evidence=Evidence.BACKEND_CONFIRMED,
        better="lower",
        measure=lambda rows: fraction_of_requests(filter(is_reused, rows), _is_flipped),
        companion="answer_flip_rate",
    ),
)
