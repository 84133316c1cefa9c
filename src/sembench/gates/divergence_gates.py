"""Gates on how far warm answers differ from cold ones: mean and worst KL, flips, identical texts.

Each is judged over all clean pairs and over the reused ones alone. Misses agree anyway and would dilute bad reuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.gates.calibration import NoiseFloor
from sembench.gates.paired_figures import count_in
from sembench.gates.table import BY_NAME
from sembench.gates.verdict import Measured, Verdict, number
from sembench.metrics.rows import RequestRow, is_clean, is_reused, pairs_of

KL: Final = "warm_vs_cold_mean_kl_topk"
WORST_KL: Final = "warm_vs_cold_worst_kl_topk"
_KL_N: Final = "warm_vs_cold_kl_n"
_MEAN: Final = "max_warm_vs_cold_kl"
_WORST: Final = "max_worst_kl"
_TEXTS: Final = "min_identical_text_rate"
_ZERO_REUSE: Final = "has no pairs: no compared answer has confirmed reuse, so it says nothing about reuse"


def judge_divergence(
    verdict: Verdict, paired: Mapping[str, Any], rows: Sequence[RequestRow], noise_floor: NoiseFloor | None
) -> None:
    clean = [row for row in pairs_of(rows) if is_clean(row, count_in(paired, "block_size"))]
    requested = verdict.request.requested
    if _MEAN in requested:
        _judge_mean_kl(verdict, paired, noise_floor)
        _require_all_compared(verdict, _MEAN, paired, _KL_N, clean)
    if _WORST in requested:
        _judge_both(verdict, _WORST, *_both(paired, WORST_KL, _KL_N))
        _require_all_compared(verdict, _WORST, paired, _KL_N, clean)
    _judge_both(verdict, "max_answer_flip_rate", *_both(paired, "answer_flip_rate", "answer_flip_n"))
    if _TEXTS in requested:
        _judge_both(verdict, _TEXTS, _text_rate(paired, ""), _text_rate(paired, "reused_"))
        _require_all_compared(verdict, _TEXTS, paired, "identical_text_n", clean)


def _judge_mean_kl(verdict: Verdict, paired: Mapping[str, Any], noise_floor: NoiseFloor | None) -> None:
    """A measured noise floor is added to the limit."""
    allowed, floor = verdict.request.limit(_MEAN) or 0.0, None if noise_floor is None else noise_floor.mean_kl
    above = ""
    if floor is not None:
        above = f" above the noise floor {floor}"
        if floor > allowed:
            message = f"two cold runs already differ by {floor:.6g}, more than the limit {allowed}"
            verdict.fail(_MEAN, "mean_kl_topk", f"a noise floor of at most {allowed}", message)
    _judge_both(verdict, _MEAN, *_both(paired, KL, _KL_N), above, floor or 0.0)
    by_transform = paired.get("by_transform")
    blocks = by_transform.items() if isinstance(by_transform, Mapping) else ()
    means = {name: number(block.get(KL)) for name, block in blocks if isinstance(block, Mapping)}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if known:  # one bad transform would disappear in the mean of all
        worst = max(known, key=lambda name: known[name])
        words, figure = f"{above}; {worst} is worst", f"worst_transform_{KL}"
        verdict.judge(_MEAN, Measured(known[worst]), figure=figure, wanted=words, spare=floor or 0.0)


def _judge_both(
    verdict: Verdict, gate: str, whole: Measured, reused: Measured, wanted: str = "", spare: float = 0.0
) -> None:
    verdict.judge(gate, whole, wanted=wanted, spare=spare)
    if whole.value is not None:
        figure = f"reused_{BY_NAME[gate].figure}"
        verdict.judge(gate, reused, figure=figure, wanted=wanted, spare=spare, why_missing=_ZERO_REUSE)


def _both(paired: Mapping[str, Any], name: str, n_name: str) -> tuple[Measured, Measured]:
    """Over all pairs and over the reused ones."""
    return _figure(paired, "", name, n_name), _figure(paired, "reused_", name, n_name)


def _figure(paired: Mapping[str, Any], prefix: str, name: str, n_name: str) -> Measured:
    value = number(paired.get(f"{prefix}{name}"))
    return Measured(value, n=None if value is None else count_in(paired, f"{prefix}{n_name}"))


def _text_rate(paired: Mapping[str, Any], prefix: str) -> Measured:
    same, of = (count_in(paired, f"{prefix}{name}") for name in ("identical_texts", "identical_text_n"))
    return Measured(same / of, of, same, of) if of and same is not None else Measured(None)


def _require_all_compared(
    verdict: Verdict, gate: str, paired: Mapping[str, Any], n_name: str, clean: Sequence[RequestRow]
) -> None:
    """Every clean pair must be compared: a skipped pair could be the one that diverged."""
    reused = [row for row in clean if is_reused(row)]
    for prefix, pairs in (("", clean), ("reused_", reused)):
        compared = count_in(paired, f"{prefix}{n_name}")
        if compared and compared < len(pairs):  # 0 is reported as a missing figure instead
            kind = "clean pairs with reuse" if prefix else "clean pairs"
            message = f"only {compared} of {len(pairs)} {kind} had their answers compared"
            verdict.fail(gate, f"{prefix}{n_name}", f"all {len(pairs)}", message)
