"""The speedup gate. A speedup is attributed to reuse only if reuse was confirmed and pairs without reuse did not
speed up as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sembench.gates.calibration import NoiseFloor
from sembench.gates.paired_figures import BLENDED, DEVIATION, MISS, NEGATIVE, count_in, speedup_in
from sembench.gates.verdict import Measured, Verdict
from sembench.metrics.rows import RequestRow, is_clean, is_reused, pairs_of, speedup

GATE: Final = "min_blended_ttft_speedup"
_TOLERANCE: Final = 0.05
"""How far above 1 the speedup of pairs without reuse may be; --max-negative-control-speedup-deviation overrides it."""


def judge_speedup(
    verdict: Verdict,
    paired: Mapping[str, Any],
    config: Mapping[str, Any],
    rows: Sequence[RequestRow],
    noise_floor: NoiseFloor | None,
) -> None:
    if GATE not in verdict.request.requested:
        return
    found = speedup_in(paired, BLENDED)
    verdict.judge_ratio(GATE, found)
    if found.value is None:
        return
    clean = [row for row in pairs_of(rows) if is_clean(row, count_in(paired, "block_size"))]
    _require_reuse(verdict, count_in(paired, "hit_only_ttft_speedup_n"))
    _require_known_prefix(verdict, config, clean)
    floor = None if noise_floor is None else noise_floor.ttft_ratio_high
    bound = _bound(verdict, floor)
    negatives = [row for row in clean if row.negative_control]
    _judge_idle(verdict, paired, NEGATIVE, "negative controls", negatives, bound)
    if not negatives:
        verdict.lack(NEGATIVE, f"{GATE}: there are no negative controls to rule out other causes of a speedup")
    misses = [row for row in clean if not row.negative_control and is_reused(row) is False]
    hits = [row for row in clean if not row.negative_control and is_reused(row)]
    if speedup_in(paired, MISS).ci95 is not None or len(misses) >= len(
        hits
    ):  # a single slow cold request is not evidence
        _judge_idle(verdict, paired, MISS, "pairs without reuse", misses, bound)
    _compare_with_negatives(verdict, found, speedup_in(paired, NEGATIVE))
    if floor is not None and 1 < found.value <= floor:
        message = f"{BLENDED} is {found}, but two cold runs in the calibration already differ by up to {floor:.6g}"
        verdict.fail(GATE, BLENDED, f"above the noise floor {floor:.6g}", message)


def _bound(verdict: Verdict, floor: float | None) -> float:
    asked = verdict.request.limit(DEVIATION)
    return max(1 + (_TOLERANCE if asked is None else asked), floor or 0.0)


def _require_reuse(verdict: Verdict, hits: int | None) -> None:
    metric, wanted = "hit_only_ttft_speedup_n", "at least 1"
    if hits is None:
        verdict.lack(
            metric, f"{GATE}: the backend reported on no pair whether KV was reused (run with --connector-audit)"
        )
    elif not hits:
        verdict.fail(GATE, metric, wanted, "no clean pair has confirmed reuse, so the speedup has another cause")


def _require_known_prefix(verdict: Verdict, config: Mapping[str, Any], clean: Sequence[RequestRow]) -> None:
    """Without a reset before the recipient, the engine's own prefix cache serves the donor's exact prefix."""
    unknown = [row.item_id for row in clean if not row.negative_control and row.exact_prefix_tokens is None]
    if unknown and not config.get("recipient_resets"):
        verdict.lack(
            "exact_prefix_tokens",
            f"{GATE}: exact caches were not reset before recipients, and for {len(unknown)} pairs the length of the "
            f"exact prefix is unknown ({unknown[0]} first); pass --recipient-reset-url or --tokenizer",
        )


def _judge_idle(
    verdict: Verdict, paired: Mapping[str, Any], metric: str, who: str, pairs: Sequence[RequestRow], bound: float
) -> None:
    """Pairs without reuse must show no speedup: the lower end of the confidence interval (the minimum ratio if n < 6)
    must not exceed the bound.
    """
    if not pairs:
        return
    found = speedup_in(paired, metric)
    low = found.ci95[0] if found.ci95 is not None else min(speedup(row) for row in pairs)
    if low > bound:
        message = (
            f"{who} sped up too ({metric} is {found}, lower end {low:.6g}), so the speedup has another cause than reuse"
        )
        verdict.fail(GATE, metric, f"a lower end of at most {bound:.6g}", message)


def _compare_with_negatives(verdict: Verdict, found: Measured, negatives: Measured) -> None:
    if found.value is None or found.value <= 1 or negatives.ci95 is None or negatives.ci95[0] < found.value:
        return
    message = f"negative controls sped up as much, {negatives}: {BLENDED} {found} has another cause than reuse"
    verdict.fail(GATE, NEGATIVE, f"a lower end below {found.value:.6g}", message)
