"""Gates on the ``paired`` block: speedup, negative controls, divergence, lost pairs. Hit-only is shown, not judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.gates.calibration import NoiseFloor
from sembench.gates.divergence_gates import judge_divergence
from sembench.gates.paired_figures import DEVIATION, NEGATIVE, speedup_in
from sembench.gates.speedup_gates import judge_speedup
from sembench.gates.verdict import Measured, Verdict, number
from sembench.metrics.rows import RequestRow

_COUNTS: Final = (
    "pairs",
    "failed_pairs",
    "contamination_checked_pairs",
    "flush_contaminated_pairs",
    "clean_pairs",
)
_SPEEDUPS: Final = (
    "blended_ttft",
    "hit_only_ttft",
    "miss_ttft",
    "negative_control_ttft",
    "blended_e2e",
    "hit_only_e2e",
)


def judge_pairs(
    verdict: Verdict, result: Mapping[str, Any], rows: Sequence[RequestRow], noise_floor: NoiseFloor | None
) -> None:
    stated = result["paired"]
    paired: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    judge_speedup(verdict, paired, result["config"], rows, noise_floor)
    if DEVIATION in verdict.request.requested:
        verdict.judge_ratio(DEVIATION, speedup_in(paired, NEGATIVE))
    judge_divergence(verdict, paired, rows, noise_floor)
    _judge_lost(verdict, paired, "max_failed_pair_rate", "failed_pairs")
    _judge_lost(verdict, paired, "max_contaminated_pair_rate", "flush_contaminated_pairs")
    if "require_contamination_check" in verdict.request.requested:
        _judge_contamination(verdict, paired)
    if paired:
        _observe(verdict, paired)


def _observe(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    """Always all figures: hit-only is never shown without blended, and neither without its n and interval."""
    for name in _COUNTS:
        verdict.observed[name] = paired.get(name)
    for kind in _SPEEDUPS:
        for figure in ("median", "ci95", "n"):
            verdict.observed[f"{kind}_speedup_{figure}"] = paired.get(f"{kind}_speedup_{figure}")


def _judge_lost(verdict: Verdict, paired: Mapping[str, Any], gate: str, name: str) -> None:
    """Always judged if there are pairs: figures over the few remaining pairs do not represent the run."""
    pairs, lost = number(paired.get("pairs")), number(paired.get(name))
    if pairs or gate in verdict.request.requested:
        found = Measured(lost / pairs, int(pairs), lost, pairs) if pairs and lost is not None else Measured(None)
        verdict.judge(gate, found)


def _judge_contamination(verdict: Verdict, paired: Mapping[str, Any]) -> None:
    """Every successful cold arm must have been checked for contamination, and at least one clean pair must remain."""
    gate, metric = "require_contamination_check", "contamination_checked_pairs"
    pairs, failed, checked, contaminated, clean = (number(paired.get(name)) for name in _COUNTS)
    if pairs is None or failed is None or checked is None or contaminated is None or clean is None or not pairs:
        why = "is missing: the result holds no pairs"
        verdict.decide(gate, metric, Measured(None), bool, "all pairs", why_missing=why)
        return
    whole = pairs - failed
    found = Measured(checked, int(whole), checked, whole)
    verdict.decide(gate, metric, found, lambda v: v == whole, f"all {whole:.0f} pairs with two successful arms")
    if not clean:
        counts = f"{failed:.0f} failed, {contaminated:.0f} contaminated of {pairs:.0f}"
        verdict.fail(gate, "clean_pairs", "at least 1", f"there are no clean pairs ({counts})")
