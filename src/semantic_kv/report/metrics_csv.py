"""metrics.csv: one row per cache model, capacity, policy and seed, and one per policy over all seeds (seed ``all``)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Final

from semantic_kv.experiment.cells import BOUNDS
from semantic_kv.experiment.figures import BoundFigures, CellFigures, Tally
from semantic_kv.experiment.study import CacheSetting, RankedPolicy, Study

Value = str | int | float | None
COLUMNS: Final = (
    *("experiment", "model", "unit", "capacity", "policy", "evict", "admit", "seed", "requests", "references"),
    *("hit_blocks", "hit_ratio", "hit_ratio_low", "hit_ratio_high", "prompt_tokens", "hit_tokens", "token_hit_ratio"),
    *("modelled_ttft_mean_ms", "modelled_ttft_p50_ms", "modelled_ttft_p95_ms", "modelled_ttft_p99_ms"),
    *("ttft_improvement_vs_lru", "ttft_improvement_low", "ttft_improvement_high", "headroom_share", "regret"),
    *("admitted", "refused", "evicted"),
)


def metrics_csv(study: Study) -> str:
    return written(COLUMNS, _rows(study))


def written(columns: Iterable[str], rows: Iterable[dict[str, Value]]) -> str:
    """Unknown values are empty, not zero."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, tuple(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _plain(value) for key, value in row.items()})
    return stream.getvalue()


def _rows(study: Study) -> Iterable[dict[str, Value]]:
    for setting in study.settings():
        for ranked in study.at(setting):
            yield {**_named(study, setting, ranked.name), **_of_choice(ranked), **_whole(ranked)}
            cells = study.cells_at(setting, ranked.choice)
            for seed, cell in zip(study.config.seeds, cells, strict=True):
                yield {**_named(study, setting, ranked.name), **_of_choice(ranked), **_single(seed, cell)}
        for bound in BOUNDS if study.config.bounds else ():
            for seed, figures in zip(study.config.seeds, study.bounds_at(setting, bound), strict=True):
                yield {**_named(study, setting, bound), **_bound(seed, figures)}


def _named(study: Study, setting: CacheSetting, policy: str) -> dict[str, Value]:
    model, capacity = setting
    experiment, unit = study.config.experiment, study.config.unit
    return {"experiment": experiment, "model": model, "unit": unit, "capacity": capacity, "policy": policy}


def _of_choice(ranked: RankedPolicy) -> dict[str, Value]:
    return {"evict": ranked.choice.evict, "admit": ranked.choice.admit}


def _whole(ranked: RankedPolicy) -> dict[str, Value]:
    low, high = ranked.hit_ratio_interval or (None, None)
    lower, upper = ranked.improvement_interval or (None, None)
    return {
        **_tally(ranked.total),
        "seed": "all",
        "hit_ratio_low": low,
        "hit_ratio_high": high,
        "modelled_ttft_p50_ms": ranked.ttft_p50_ms,
        "modelled_ttft_p95_ms": ranked.ttft_p95_ms,
        "modelled_ttft_p99_ms": ranked.ttft_p99_ms,
        "ttft_improvement_vs_lru": ranked.improvement,
        "ttft_improvement_low": lower,
        "ttft_improvement_high": upper,
        "headroom_share": ranked.headroom_share,
        "regret": ranked.regret,
        "admitted": ranked.admitted,
        "refused": ranked.refused,
        "evicted": ranked.evicted,
    }


def _single(seed: int, cell: CellFigures) -> dict[str, Value]:
    return {
        **_tally(cell.total),
        "seed": seed,
        "modelled_ttft_p50_ms": cell.ttft_p50_ms,
        "modelled_ttft_p95_ms": cell.ttft_p95_ms,
        "modelled_ttft_p99_ms": cell.ttft_p99_ms,
        "admitted": cell.admitted,
        "refused": cell.refused,
        "evicted": cell.evicted,
    }


def _bound(seed: int, figures: BoundFigures) -> dict[str, Value]:
    return {
        "seed": seed,
        "requests": figures.requests,
        "references": figures.references,
        "hit_blocks": figures.hit_blocks,
        "hit_ratio": None if figures.hit_blocks is None else figures.share("blocks"),
        "prompt_tokens": figures.prompt_tokens,
        "hit_tokens": figures.hit_tokens,
        "token_hit_ratio": figures.share("tokens"),
    }


def _tally(tally: Tally) -> dict[str, Value]:
    return {
        "requests": tally.requests,
        "references": tally.references,
        "hit_blocks": tally.hit_blocks,
        "hit_ratio": tally.hit_ratio,
        "prompt_tokens": tally.prompt_tokens,
        "hit_tokens": tally.hit_tokens,
        "token_hit_ratio": tally.token_hit_ratio,
        "modelled_ttft_mean_ms": tally.ttft_mean_ms,
    }


def _plain(value: Value) -> Value:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value
