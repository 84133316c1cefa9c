"""metrics.csv: one row per model, capacity, policy and seed, and one per policy over all seeds (seed ``all``)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Final

from semantic_kv.experiment.cells import BOUNDS
from semantic_kv.experiment.figures import BoundFigures, CellFigures, Tally
from semantic_kv.experiment.study import Place, Standing, Study

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
    """What is not known stays empty: it is not zero."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, tuple(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _plain(value) for key, value in row.items()})
    return stream.getvalue()


def _rows(study: Study) -> Iterable[dict[str, Value]]:
    for place in study.places():
        for standing in study.at(place):
            yield {**_named(study, place, standing.name), **_of_choice(standing), **_whole(standing)}
            cells = study.cells_at(place, standing.choice)
            for seed, cell in zip(study.config.seeds, cells, strict=True):
                yield {**_named(study, place, standing.name), **_of_choice(standing), **_single(seed, cell)}
        for bound in BOUNDS if study.config.bounds else ():
            for seed, figures in zip(study.config.seeds, study.bounds_at(place, bound), strict=True):
                yield {**_named(study, place, bound), **_bound(seed, figures)}


def _named(study: Study, place: Place, policy: str) -> dict[str, Value]:
    model, capacity = place
    experiment, unit = study.config.experiment, study.config.unit
    return {"experiment": experiment, "model": model, "unit": unit, "capacity": capacity, "policy": policy}


def _of_choice(standing: Standing) -> dict[str, Value]:
    return {"evict": standing.choice.evict, "admit": standing.choice.admit}


def _whole(standing: Standing) -> dict[str, Value]:
    low, high = standing.hit_ratio_interval or (None, None)
    least, most = standing.improvement_interval or (None, None)
    return {
        **_tally(standing.total),
        "seed": "all",
        "hit_ratio_low": low,
        "hit_ratio_high": high,
        "modelled_ttft_p50_ms": standing.ttft_p50_ms,
        "modelled_ttft_p95_ms": standing.ttft_p95_ms,
        "modelled_ttft_p99_ms": standing.ttft_p99_ms,
        "ttft_improvement_vs_lru": standing.improvement,
        "ttft_improvement_low": least,
        "ttft_improvement_high": most,
        "headroom_share": standing.headroom_share,
        "regret": standing.regret,
        "admitted": standing.admitted,
        "refused": standing.refused,
        "evicted": standing.evicted,
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
