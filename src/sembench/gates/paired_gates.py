"""Gates over the ``paired`` block: speedup, negative controls, divergence, contamination. Hit-only is only printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sembench.gates.calibration import NoiseFloor
from sembench.gates.verdict import Measured, Verdict, number

BLENDED: Final = "blended_ttft_speedup_median"
NEGATIVE: Final = "negative_control_ttft_speedup_median"
KL: Final = "warm_vs_cold_mean_kl_topk"
_COUNTS: Final = (
    "pairs",
    "failed_pairs",
    "contamination_checked_pairs",
    "flush_contaminated_pairs",
    "clean_pairs",
)
_SPEEDUPS: Final = ("blended", "hit_only", "miss", "negative_control")
_ZERO_REUSE: Final = "has no pair: answers were compared with zero confirmed reuse, which proves nothing about reuse"


def judge_pairs(verdict: Verdict, stated: object, noise_floor: NoiseFloor) -> None:
    paired: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    _judge_speedup(verdict, paired, noise_floor)
    _judge_negatives(verdict, paired)
    _judge_divergence(verdict, paired, noise_floor)
    _judge_failed(verdict, paired)
    if verdict.request.require_contamination_check:
        _judge_contamination(verdict, paired)
    if paired:
        _observe(verdict, paired)


def _observe(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    """The whole picture, asked for or not: hit-only never without blended, neither without its n and interval."""
    for name in _COUNTS:
        verdict.observed[name] = paired.get(name)
    for kind in _SPEEDUPS:
        for figure in ("median", "ci95", "n"):
            verdict.observed[f"{kind}_ttft_speedup_{figure}"] = paired.get(f"{kind}_ttft_speedup_{figure}")


def _speedup(paired: Mapping[str, Any], kind: str) -> Measured:
    interval = paired.get(f"{kind}_ttft_speedup_ci95")
    n = number(paired.get(f"{kind}_ttft_speedup_n"))
    return Measured(
        number(paired.get(f"{kind}_ttft_speedup_median")),
        n=None if n is None else int(n),
        ci95=_interval(interval),
    )


def _interval(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = (number(end) for end in value)
    return None if low is None or high is None else (low, high)


def _judge_speedup(verdict: Verdict, paired: Mapping[str, Any], noise_floor: NoiseFloor) -> None:
    limit, gate = verdict.request.min_blended_ttft_speedup, "min_blended_ttft_speedup"
    if limit is None:
        return
    found, negatives = _speedup(paired, "blended"), _speedup(paired, "negative_control")
    wanted = f"at least {limit}"
    if verdict.request.judge_interval:
        _decide_by_interval(verdict, gate, BLENDED, found, min, lambda v: v >= limit, wanted)
    else:
        verdict.decide(gate, BLENDED, found, lambda v: v >= limit, wanted)
    if found.value is None or found.value <= 1:
        return
    if negatives.ci95 is not None and negatives.ci95[0] >= found.value:
        complaint = f"negative controls sped up as much, {negatives}: whatever made {BLENDED} {found}, it was not reuse"
        verdict.fail(gate, NEGATIVE, f"an interval that begins below {found.value:.6g}", complaint)
    if noise_floor.ttft_ratio_high is not None and found.value <= noise_floor.ttft_ratio_high:
        complaint = (
            f"{BLENDED} is {found}, but two cold runs of the calibration already differ by up to "
            f"{noise_floor.ttft_ratio_high:.6g}"
        )
        verdict.fail(gate, BLENDED, f"above the noise floor {noise_floor.ttft_ratio_high:.6g}", complaint)


def _judge_negatives(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    limit, gate = verdict.request.max_negative_control_speedup_deviation, "max_negative_control_speedup_deviation"
    if limit is None:
        return
    found = _speedup(paired, "negative_control")
    wanted = f"within {limit} of 1"
    if verdict.request.judge_interval:
        _decide_by_interval(verdict, gate, NEGATIVE, found, _farther_from_1, lambda v: abs(v - 1.0) <= limit, wanted)
    else:
        verdict.decide(gate, NEGATIVE, found, lambda v: abs(v - 1.0) <= limit, wanted)


def _decide_by_interval(
    verdict: Verdict,
    gate: str,
    metric: str,
    found: Measured,
    end: Callable[[tuple[float, float]], float],
    holds: Callable[[float], bool],
    wanted: str,
) -> None:
    if found.ci95 is not None:
        verdict.decide(gate, metric, found, holds, wanted, judged=end(found.ci95))
        return
    why = f"has no 95 % interval (n = {found.n or 0}, and six pairs are the least), which --judge-interval wants"
    verdict.decide(gate, metric, Measured(None, n=found.n), holds, wanted, why_missing=why)


def _farther_from_1(interval: tuple[float, float]) -> float:
    return max(interval, key=lambda end: abs(end - 1.0))


def _judge_divergence(verdict: Verdict, paired: Mapping[str, Any], noise_floor: NoiseFloor) -> None:
    """Over all pairs and over those that reused: misses agree by themselves and would dilute a collapse."""
    allowed, gate = verdict.request.max_warm_vs_cold_kl, "max_warm_vs_cold_kl"
    if allowed is None:
        return
    bound = allowed + (noise_floor.mean_kl or 0.0)
    wanted = f"at most {allowed}"
    if noise_floor.mean_kl is not None:
        wanted += f" above the noise floor {noise_floor.mean_kl}"
    whole = _kl(paired, "")
    verdict.decide(gate, KL, whole, lambda v: v <= bound, wanted)
    if whole.value is not None:
        found = _kl(paired, "reused_")
        verdict.decide(gate, f"reused_{KL}", found, lambda v: v <= bound, wanted, why_missing=_ZERO_REUSE)


def _kl(paired: Mapping[str, Any], prefix: str) -> Measured:
    value, n = number(paired.get(f"{prefix}{KL}")), number(paired.get(f"{prefix}warm_vs_cold_kl_n"))
    return Measured(value, n=None if n is None or value is None else int(n))


def _judge_failed(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    limit = verdict.request.max_failed_pair_rate
    if limit is None:
        return
    pairs, failed = number(paired.get("pairs")), number(paired.get("failed_pairs"))
    found = Measured(None)
    if pairs and failed is not None:
        found = Measured(failed / pairs, int(pairs), failed, pairs)
    verdict.decide("max_failed_pair_rate", "failed_pair_rate", found, lambda v: v <= limit, f"at most {limit}")


def _judge_contamination(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    """Every cold arm that answered must have been checked; the contaminated ones are out of the clean pairs."""
    gate, metric = "require_contamination_check", "contamination_checked_pairs"
    pairs, failed, checked, contaminated, clean = (number(paired.get(name)) for name in _COUNTS)
    if pairs is None or failed is None or checked is None or contaminated is None or clean is None or not pairs:
        why = "does not exist: the result holds no pairs"
        verdict.decide(gate, metric, Measured(None), bool, "all pairs", why_missing=why)
        return
    whole = pairs - failed
    found = Measured(checked, int(whole), checked, whole)
    verdict.decide(gate, metric, found, lambda v: v == whole, f"all {whole:.0f} pairs whose arms ended ok")
    if not clean:
        counts = f"{failed:.0f} failed, {contaminated:.0f} contaminated of {pairs:.0f}"
        verdict.fail(gate, "clean_pairs", "at least 1", f"no clean pair is left ({counts})")
