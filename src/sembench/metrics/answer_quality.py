"""How good the answers of each arm are. One arm's score alone says how good the model is, not what reuse did to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from sembench.metrics.base import Figure, Metric, Needs, mean
from sembench.metrics.rows import RequestRow
from sembench.paired.clean import cold_arm, warm_arm
from semblend.contract import Evidence

_ARMS: Final = {"cold": cold_arm, "warm": warm_arm}
_TITLES: Final = {
    "token_recall": "token recall",
    "f1": "token F1",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match (or option letter)",
}


def _metric(arm: Literal["cold", "warm"], score: str) -> Metric:
    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        arms = [found for row in rows if (found := _ARMS[arm](row)) is not None]
        return mean(getattr(found, score) for found in arms)

    return Metric(
        name=f"{arm}_{score}",
        unit="share",
        formula=f"sum of the {arm} answers' {_TITLES[score]} / scored {arm} answers",
        needs=(Needs.ANSWERS,),
        evidence=Evidence.MEASURED_LIVE,
        better="higher",
        measure=measure,
        companion=f"{'warm' if arm == 'cold' else 'cold'}_{score}",
    )


COLD_TOKEN_RECALL: Final = _metric("cold", "token_recall")
COLD_F1: Final = _metric("cold", "f1")
COLD_ROUGE_L: Final = _metric("cold", "rouge_l")
COLD_EXACT_MATCH: Final = _metric("cold", "exact_match")
WARM_TOKEN_RECALL: Final = _metric("warm", "token_recall")
WARM_F1: Final = _metric("warm", "f1")
WARM_ROUGE_L: Final = _metric("warm", "rouge_l")
WARM_EXACT_MATCH: Final = _metric("warm", "exact_match")
