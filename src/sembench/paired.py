"""Rows -> the ``paired`` block of a result. Blended figures include all clean pairs, also misses.

Every median ``X_median`` comes with ``X_n`` (number of pairs) and ``X_ci95`` (``[low, high]``, None below six pairs).
``ttft`` is the time to the first token, ``e2e`` the time to the last, which includes answers of different length.
Negative controls are not in blended, hit-only and miss; they have their own figures.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sembench.metrics.base import percentile
from sembench.metrics.rows import (
    PairRow,
    RequestRow,
    e2e_speedup,
    is_checked,
    is_clean,
    is_contaminated,
    is_failed,
    is_reused,
    pairs_of,
    speedup,
    timed,
)

RESAMPLES: Final = 2000
MIN_VALUES: Final = 6
"""Below six values a median has no 95 % interval: even from minimum to maximum it covers less (1 - 2 / 2^n)."""
_TAIL: Final = RESAMPLES * 25 // 1000
_SCORES: Final = ("token_recall", "f1", "rouge_l", "exact_match")


def summarize_pairs(rows: Sequence[RequestRow], *, block_size: int, seed: int) -> dict[str, Any]:
    """The ``paired`` block. ``seed`` seeds the resamples; the order of the rows does not matter."""
    clean = [row for row in pairs_of(rows) if is_clean(row, block_size)]
    reused = [row for row in clean if is_reused(row)]
    transforms = sorted({row.transform for row in pairs_of(rows)})
    return {
        "block_size": block_size,
        "bootstrap_seed": seed,
        "bootstrap_resamples": RESAMPLES,
        **_counts(rows, block_size),
        **_speedups(clean, seed),
        **_speedup("negative_control_ttft", [row for row in clean if row.negative_control], seed),
        **_divergence("", clean),
        **_divergence("reused_", reused),
        **_propagation(rows),
        "by_transform": {
            name: _one_transform([row for row in rows if row.transform == name], block_size, seed)
            for name in transforms
        },
    }


def _one_transform(rows: Sequence[RequestRow], block_size: int, seed: int) -> dict[str, Any]:
    """Figures of one transform: of a negative control its own speedups, of others blended, hit-only and miss."""
    clean = [row for row in pairs_of(rows) if is_clean(row, block_size)]
    return {
        **_counts(rows, block_size),
        **_speedups(clean, seed),
        **_speedup("negative_control_ttft", [row for row in clean if row.negative_control], seed),
        **_divergence("", clean),
        **_divergence("reused_", [row for row in clean if is_reused(row)]),
    }


def _counts(rows: Sequence[RequestRow], block_size: int) -> dict[str, Any]:
    pairs = pairs_of(rows)
    whole = [row for row in pairs if not is_failed(row)]
    clean = [row for row in whole if not is_contaminated(row, block_size)]
    statuses = Counter(arm.status for row in pairs for arm in (row.cold, row.warm) if arm and arm.status != "ok")
    orders = [row.pair.warm_first for row in clean if row.pair is not None]
    return {
        "pairs": len(pairs),
        "failed_pairs": len(pairs) - len(whole),
        "failed_arm_statuses": dict(sorted(statuses.items())),
        "contamination_checked_pairs": sum(is_checked(row) for row in whole),
        "flush_contaminated_pairs": len(whole) - len(clean),
        "clean_pairs": len(clean),
        "warm_first_pairs": sum(orders) if orders else None,
    }


def _speedups(clean: Sequence[RequestRow], seed: int) -> dict[str, Any]:
    positive = [row for row in clean if not row.negative_control]
    reported = [row for row in positive if is_reused(row) is not None]
    hits = [row for row in reported if is_reused(row)]
    misses = [row for row in reported if not is_reused(row)]
    blended = _speedup("blended_ttft", positive, seed)
    return {
        **blended,
        "blended_ttft_speedup_of_totals": _ratio_of_totals(positive),
        **_speedup("hit_only_ttft", hits, seed, measured=bool(reported)),
        **_speedup("miss_ttft", misses, seed, measured=bool(reported)),
        **_speedup("blended_e2e", positive, seed, read=e2e_speedup),
        **_speedup("hit_only_e2e", hits, seed, measured=bool(reported), read=e2e_speedup),
        "confirmed_reuse_share_of_pairs": len(hits) / len(reported) if reported else None,
        "reported_pairs": len(reported),
    }


def _speedup(
    name: str,
    pairs: Sequence[RequestRow],
    seed: int,
    *,
    measured: bool = True,
    read: Callable[[RequestRow], float | None] = speedup,
) -> dict[str, Any]:
    """``measured`` is False if the backend reported nothing: then even the number of pairs is unknown."""
    ratios = [ratio for row in pairs if (ratio := read(row)) is not None]
    return {
        f"{name}_speedup_median": statistics.median(ratios) if ratios else None,
        f"{name}_speedup_ci95": median_interval(ratios, seed),
        f"{name}_speedup_n": len(ratios) if measured else None,
    }


def _ratio_of_totals(pairs: Sequence[RequestRow]) -> float | None:
    """Total cold time over total warm time: the speedup of the traffic as a whole."""
    cold = [timed(row.cold) or 0.0 for row in pairs]
    warm = [timed(row.warm) or 0.0 for row in pairs]
    return math.fsum(cold) / math.fsum(warm) if pairs else None


def _divergence(prefix: str, clean: Sequence[RequestRow]) -> dict[str, Any]:
    """How far warm answers are from cold ones. Every pair weighs the same, however early its answers differ."""
    mean_kl = _of_pair(clean, lambda pair: pair.mean_kl)
    worst_kl = _of_pair(clean, lambda pair: pair.worst_kl)
    agreed = _of_pair(clean, lambda pair: pair.agreed_tokens)
    flips = _of_pair(clean, lambda pair: pair.answer_flip)
    same = [row.cold.text == row.warm.text for row in clean if _has_text(row) and row.cold and row.warm]
    p95 = percentile(mean_kl, 95)
    return {
        f"{prefix}warm_vs_cold_mean_kl_topk": _mean(mean_kl),
        f"{prefix}warm_vs_cold_p95_kl_topk": None if p95 is None else p95.value,
        f"{prefix}warm_vs_cold_worst_kl_topk": max(worst_kl) if worst_kl else None,
        f"{prefix}warm_vs_cold_kl_n": len(mean_kl),
        f"{prefix}agreed_tokens_median": statistics.median(agreed) if agreed else None,
        f"{prefix}answer_flips": sum(flips) if flips else None,
        f"{prefix}answer_flip_rate": _mean(flips),
        f"{prefix}answer_flip_n": len(flips),
        f"{prefix}identical_texts": sum(same) if same else None,
        f"{prefix}identical_text_n": len(same),
        **{key: value for score in _SCORES for key, value in _change(f"{prefix}{score}_change", clean, score).items()},
    }


def _propagation(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """M7: later exact requests that were served loaded KV as if it were exact."""
    probed = [
        row.backend.propagated_tokens for row in rows if row.backend and row.backend.propagated_tokens is not None
    ]
    spread = sum(tokens > 0 for tokens in probed)
    return {
        "propagation_probed_requests": len(probed),
        "propagation_contaminated_requests": spread if probed else None,
        "propagation_contamination_rate": spread / len(probed) if probed else None,
    }


def _of_pair(rows: Iterable[RequestRow], read: Callable[[PairRow], float | None]) -> list[float]:
    return [value for row in rows if row.pair is not None and (value := read(row.pair)) is not None]


def _change(name: str, rows: Iterable[RequestRow], score: str) -> dict[str, Any]:
    """Warm score minus cold score where both were scored."""
    scores = [(getattr(row.warm, score), getattr(row.cold, score)) for row in rows]
    changes = [warm - cold for warm, cold in scores if warm is not None and cold is not None]
    return {f"{name}_mean": _mean(changes), f"{name}_n": len(changes)}


def _has_text(row: RequestRow) -> bool:
    return bool(row.cold and row.warm and row.cold.text is not None and row.warm.text is not None)


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def median_interval(values: Sequence[float], seed: int) -> list[float] | None:
    """``[low, high]``, the same for the same values in any order; None for fewer than six."""
    if len(values) < MIN_VALUES:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    medians = np.sort(resampled_medians(ordered, RESAMPLES, seed))
    return [float(medians[_TAIL - 1]), float(medians[-_TAIL])]


def resampled_medians(ordered: npt.NDArray[np.float64], resamples: int, seed: int) -> npt.NDArray[np.float64]:
    """Medians of bootstrap resamples of the sorted values, without building the resamples.

    A resample is n uniform draws, each selecting a value; the middle draw or draws select its median. Those follow Beta
    distributions, so the cost does not grow with n, even for a run of a hundred thousand pairs.
    """
    # RandomState has a frozen stream: a gate run with another numpy must draw the same resamples.
    draws = np.random.RandomState(seed % 2**32)
    n = len(ordered)
    middle = (n + 1) // 2
    lower = draws.beta(middle, n + 1 - middle, resamples)
    if n % 2:
        return ordered[_selected(lower, n)]
    upper = lower + (1.0 - lower) * draws.beta(1, n - middle, resamples)
    return (ordered[_selected(lower, n)] + ordered[_selected(upper, n)]) / 2.0


def _selected(uniform: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.intp]:
    return np.minimum((uniform * n).astype(np.intp), n - 1)
