"""A collected trace in, the arrays for a fit out. Requests with missing values are skipped and counted, never zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sembase.latency import Floats
from sembase.trace.columns import BlockTrace
from sembase.trace.record import TraceRecord

NO_TTFT = "no observed TTFT"
NO_CACHED = "the server did not report cached tokens"
BAD_COUNTS = "more cached tokens than prompt tokens"
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """One row per usable request, in order of arrival. ``total_ms`` is nan if only the first token was timed.

    ``output_tokens`` is 1 if unknown: only the first token is certain. ``invented``: number of requests that are marked
    as not timed on a server.
    """

    name: str
    arrival_ms: Floats
    uncached_tokens: Longs
    cached_tokens: Longs
    output_tokens: Longs
    ttft_ms: Floats
    total_ms: Floats
    skipped: Mapping[str, int]
    invented: int = 0

    def __len__(self) -> int:
        return int(self.ttft_ms.shape[0])

    def rows(self, chosen: npt.NDArray[np.bool_]) -> Observations:
        return replace(self, **{name: getattr(self, name)[chosen] for name in _COLUMNS})

    def overlapping(self) -> npt.NDArray[np.bool_]:
        """Which requests arrived while an earlier one was being served, as far as known."""
        known = np.where(np.isnan(self.total_ms), self.ttft_ms, self.total_ms)
        busy_until = np.maximum.accumulate(self.arrival_ms + known)
        met = np.zeros(len(self), dtype=np.bool_)
        met[1:] = self.arrival_ms[1:] < busy_until[:-1]
        return met


_COLUMNS = ("arrival_ms", "uncached_tokens", "cached_tokens", "output_tokens", "ttft_ms", "total_ms")


def is_invented(record: TraceRecord) -> bool:
    """Whether the record says that its observed times come from a mock or are invented."""
    return bool(record.metadata.get("mock")) or record.metadata.get("observed") == "invented"


def observations_from_records(records: Iterable[TraceRecord], name: str = "trace") -> Observations:
    """From ``semantic_kv.trace.v1`` records.

    Some servers omit the count of cached tokens if it is 0: where others were reported, a missing one is 0.
    """
    rows: list[tuple[float, int, int, int, float, float]] = []
    silent: list[tuple[float, int, int, int, float, float]] = []
    skipped: Counter[str] = Counter()
    invented = 0
    for record in records:
        invented += is_invented(record)
        cached, uncached = _tokens(
            record.prompt_tokens, record.observed_prefix_hit_tokens, record.observed_prefill_tokens
        )
        ttft, total = record.observed_ttft_ms, record.observed_total_latency_ms
        if ttft is None or ttft <= 0.0:
            skipped[NO_TTFT] += 1
            continue
        times = (max(record.output_tokens or 1, 1), ttft, float("nan") if total is None or total < ttft else total)
        prompt = record.metadata.get("prompt_tokens")
        if cached is not None and uncached is not None and uncached < 0:
            skipped[BAD_COUNTS] += 1
        elif cached is not None and uncached is not None:
            rows.append((record.timestamp_ms, uncached, cached, *times))
        elif isinstance(prompt, int):
            silent.append((record.timestamp_ms, prompt, 0, *times))
        else:
            skipped[NO_CACHED] += 1
    if any(cached > 0 for _, _, cached, *_ in rows):
        rows += silent
    elif silent:
        skipped[NO_CACHED] += len(silent)
    return replace(_assembled(name, rows, skipped), invented=invented)


def observations_from_trace(trace: BlockTrace) -> Observations:
    """From columns; they hold no total latency, so decoding cannot be fitted from them."""
    prompt = np.add.reduceat(
        np.append(trace.node_tokens[trace.nodes], 0).astype(np.int64), np.minimum(trace.offsets[:-1], trace.nodes.size)
    )
    prompt[np.diff(trace.offsets) == 0] = 0
    rows: list[tuple[float, int, int, int, float, float]] = []
    skipped: Counter[str] = Counter()
    for index in range(trace.request_count):
        hit, prefill = trace.observed_hit_tokens[index], trace.observed_prefill_tokens[index]
        cached, uncached = _tokens(int(prompt[index]), _whole(hit), _whole(prefill))
        ttft = float(trace.observed_ttft_ms[index])
        if not ttft > 0.0:
            skipped[NO_TTFT] += 1
        elif cached is None or uncached is None:
            skipped[NO_CACHED] += 1
        elif uncached < 0:
            skipped[BAD_COUNTS] += 1
        else:
            output = max(int(trace.output_tokens[index]), 1)
            rows.append((float(trace.arrival_ms[index]), uncached, cached, output, ttft, float("nan")))
    return _assembled(trace.name, rows, skipped)


def _tokens(prompt: int, hit: int | None, prefill: int | None) -> tuple[int | None, int | None]:
    """Cached and uncached tokens; either may be derived from the other and the prompt length."""
    if hit is None and prefill is None:
        return None, None
    if hit is None:
        assert prefill is not None
        return max(prompt - prefill, 0), prefill
    return hit, prompt - hit if prefill is None else prefill


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _assembled(name: str, rows: list[tuple[float, int, int, int, float, float]], skipped: Counter[str]) -> Observations:
    rows.sort(key=lambda row: row[0])
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return Observations(
        name=name,
        arrival_ms=table[:, 0].copy(),
        uncached_tokens=table[:, 1].astype(np.int64),
        cached_tokens=table[:, 2].astype(np.int64),
        output_tokens=table[:, 3].astype(np.int64),
        ttft_ms=table[:, 4].copy(),
        total_ms=table[:, 5].copy(),
        skipped=dict(skipped),
    )
