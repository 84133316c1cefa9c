"""The noise floor: every prompt cold twice, on empty caches, shows how far equal requests differ on this server.

Out comes ``sembench.calibration.v1``; ``assert-result-gates`` measures a warm run's divergence above it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sembase.files import replace_atomically
from sembench.environment import describe_environment
from sembench.gates.calibration import CALIBRATION_VERSION
from sembench.live.options import LiveRun
from sembench.live.run import Replayed, replay_manifest
from sembench.metrics.base import percentile
from sembench.metrics.rows import RequestRow
from sembench.paired import median_interval
from sembench.workload.seeded import Draws


def calibrate(run: LiveRun) -> dict[str, Any]:
    """Measures, writes the calibration atomically and returns it."""
    return replay_manifest(run, lambda replayed: _write(run, replayed))


def summarize_readings(rows: Sequence[RequestRow], *, block_size: int, seed: int) -> dict[str, Any]:
    """``cold`` and ``warm`` of a row are the first and the second cold reading. Every prompt has the same weight."""
    whole = [row for row in rows if _is_whole(row)]
    clean = [row for row in whole if not _is_contaminated(row, block_size)]
    means = [row.pair.mean_kl for row in clean if row.pair is not None and row.pair.mean_kl is not None]
    worst = [row.pair.worst_kl for row in clean if row.pair is not None and row.pair.worst_kl is not None]
    agreed = [row.pair.agreed_tokens for row in clean if row.pair is not None and row.pair.agreed_tokens is not None]
    same = sum(row.cold.text == row.warm.text for row in clean if row.cold is not None and row.warm is not None)
    ratios = [_ratio(row, seed) for row in clean]
    return {
        "prompts": len(rows),
        "failed_prompts": len(rows) - len(whole),
        "contaminated_prompts": len(whole) - len(clean),
        "unchecked_prompts": sum(_min_cached(row) is None for row in whole),
        "clean_prompts": len(clean),
        "mean_kl_topk": statistics.fmean(means) if means else None,
        "p95_kl_topk": _percentile(means, 95),
        "worst_kl_topk": max(worst) if worst else None,
        "kl_n": len(means),
        "ttft_ratio_median": statistics.median(ratios) if ratios else None,
        "ttft_ratio_median_ci95": median_interval(ratios, seed),
        "ttft_ratio_interval95": [_percentile(ratios, 2.5), _percentile(ratios, 97.5)] if ratios else None,
        "ttft_ratio_n": len(ratios),
        "greedy_agreement_rate": same / len(clean) if clean else None,
        "identical_texts": same if clean else None,
        "agreed_tokens_median": statistics.median(agreed) if agreed else None,
    }


def _write(run: LiveRun, replayed: Replayed) -> dict[str, Any]:
    chosen = run.options
    record = {
        "calibration_version": CALIBRATION_VERSION,
        "created_at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "manifest": run.manifest.name,
        "manifest_digest": replayed.manifest_digest,
        "config": dict(replayed.opened.config),
        "engine": dict(replayed.opened.engine),
        "environment": describe_environment(),
        "seed": chosen.seed,
        "sittings": list(replayed.attempts),
        **summarize_readings(replayed.rows, block_size=chosen.block_size, seed=chosen.seed),
        "readings": [_reading(row) for row in replayed.rows],
    }
    with replace_atomically(run.output) as stream:
        text = json.dumps(record, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
        stream.write(text.encode() + b"\n")
    return record


def _reading(row: RequestRow) -> Mapping[str, Any]:
    arms = {"first": row.cold, "second": row.warm}
    return {
        "item_id": row.item_id,
        "prompt_tokens": row.prompt_tokens,
        **{f"{name}_status": arm.status if arm is not None else None for name, arm in arms.items()},
        **{f"{name}_ttft_ms": arm.ttft_ms if arm is not None else None for name, arm in arms.items()},
        **{f"{name}_cached_tokens": arm.cached_tokens if arm is not None else None for name, arm in arms.items()},
        "mean_kl": row.pair.mean_kl if row.pair is not None else None,
        "worst_kl": row.pair.worst_kl if row.pair is not None else None,
        "agreed_tokens": row.pair.agreed_tokens if row.pair is not None else None,
    }


def _is_whole(row: RequestRow) -> bool:
    arms = (row.cold, row.warm)
    return all(arm is not None and arm.status == "ok" and arm.ttft_ms is not None and arm.ttft_ms > 0 for arm in arms)


def _min_cached(row: RequestRow) -> int | None:
    """None if the server did not report it for both readings."""
    counts = [arm.cached_tokens for arm in (row.cold, row.warm) if arm is not None]
    return None if None in counts else min(count for count in counts if count is not None)


def _is_contaminated(row: RequestRow, block_size: int) -> bool:
    arms = (row.cold, row.warm)
    return any(arm is not None and arm.cached_tokens is not None and arm.cached_tokens > block_size for arm in arms)


def _ratio(row: RequestRow, seed: int) -> float:
    """The order of the division is random, so that a server that speeds up does not look like a saving."""
    first, second = (arm.ttft_ms if arm is not None else None for arm in (row.cold, row.warm))
    if first is None or second is None:
        raise ValueError(f"{row.item_id} lacks a reading")
    ratio = first / second
    return ratio if Draws(seed, row.item_id, "ratio").uniform() < 0.5 else 1 / ratio


def _percentile(values: Sequence[float], percent: float) -> float | None:
    figure = percentile(values, percent)
    return None if figure is None else figure.value
