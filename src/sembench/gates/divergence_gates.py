"""Gates on how far warm answers differ from cold ones: mean and worst KL, flips, identical texts.

Each is judged over all clean pairs and over the reused ones alone. Misses agree anyway and would dilute bad reuse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sembench.gates.calibration import NoiseFloor
from sembench.gates.paired_figures import count_in
from sembench.gates.verdict import Measured, Verdict, number
from sembench.metrics.rows import RequestRow, is_clean, is_reused, pairs_of

KL: Final = "warm_vs_cold_mean_kl_topk"
WORST_KL: Final = "warm_vs_cold_worst_kl_topk"
_KL_N: Final = "warm_vs_cold_kl_n"
_ZERO_REUSE: Final = "has no pairs: no compared answer has confirmed reuse, so it says nothing about reuse"


def judge_divergence(
    verdict: Verdict, paired: Mapping[str, Any], rows: Sequence[RequestRow], noise_floor: NoiseFloor | None
) -> None:
    asked = verdict.request
    clean = [row for row in pairs_of(rows) if is_clean(row, count_in(paired, "block_size"))]
    if asked.max_warm_vs_cold_kl is not None:
        _judge_mean_kl(verdict, paired, asked.max_warm_vs_cold_kl, noise_floor)
        _require_all_compared(verdict, "max_warm_vs_cold_kl", paired, _KL_N, clean)
    if asked.max_worst_kl is not None:
        holds = partial(operator.ge, asked.max_worst_kl)
        _judge_both(verdict, "max_worst_kl", paired, (WORST_KL, _KL_N), holds, f"at most {asked.max_worst_kl}")
        _require_all_compared(verdict, "max_worst_kl", paired, _KL_N, clean)
    if asked.max_answer_flip_rate is not None:
        holds = partial(operator.ge, asked.max_answer_flip_rate)
        names = ("answer_flip_rate", "answer_flip_n")
        _judge_both(verdict, "max_answer_flip_rate", paired, names, holds, f"at most {asked.max_answer_flip_rate}")
    if asked.min_identical_text_rate is not None:
        _judge_texts(verdict, paired, asked.min_identical_text_rate)
        _require_all_compared(verdict, "min_identical_text_rate", paired, "identical_text_n", clean)


def _judge_mean_kl(verdict: Verdict, paired: Mapping[str, Any], allowed: float, noise_floor: NoiseFloor | None) -> None:
    gate, floor = "max_warm_vs_cold_kl", None if noise_floor is None else noise_floor.mean_kl
    bound, wanted = allowed + (floor or 0.0), f"at most {allowed}"
    if floor is not None:
        wanted += f" above the noise floor {floor}"
        if floor > allowed:
            message = f"two cold runs already differ by {floor:.6g}, more than the limit {allowed}"
            verdict.fail(gate, "mean_kl_topk", f"a noise floor of at most {allowed}", message)
    holds = partial(operator.ge, bound)
    _judge_both(verdict, gate, paired, (KL, _KL_N), holds, wanted)
    by_transform = paired.get("by_transform")
    blocks = by_transform.items() if isinstance(by_transform, Mapping) else ()
    means = {name: number(block.get(KL)) for name, block in blocks if isinstance(block, Mapping)}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if known:  # one bad transform would disappear in the mean of all
        worst = max(known, key=lambda name: known[name])
        verdict.decide(gate, f"worst_transform_{KL}", Measured(known[worst]), holds, f"{wanted}; {worst} is worst")


def _judge_both(
    verdict: Verdict,
    gate: str,
    paired: Mapping[str, Any],
    names: tuple[str, str],
    holds: Callable[[float], bool],
    wanted: str,
) -> None:
    """``names``: the figure and its number of pairs."""
    whole, reused = (_figure(paired, prefix, *names) for prefix in ("", "reused_"))
    verdict.decide(gate, names[0], whole, holds, wanted)
    if whole.value is not None:
        verdict.decide(gate, f"reused_{names[0]}", reused, holds, wanted, why_missing=_ZERO_REUSE)


def _figure(paired: Mapping[str, Any], prefix: str, name: str, n_name: str) -> Measured:
    value = number(paired.get(f"{prefix}{name}"))
    return Measured(value, n=None if value is None else count_in(paired, f"{prefix}{n_name}"))


def _judge_texts(verdict: Verdict, paired: Mapping[str, Any], limit: float) -> None:
    gate, metric = "min_identical_text_rate", "identical_text_rate"
    holds = partial(operator.le, limit)
    whole, reused = (_text_rate(paired, prefix) for prefix in ("", "reused_"))
    verdict.decide(gate, metric, whole, holds, f"at least {limit}")
    if whole.value is not None:
        verdict.decide(gate, f"reused_{metric}", reused, holds, f"at least {limit}", why_missing=_ZERO_REUSE)


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
