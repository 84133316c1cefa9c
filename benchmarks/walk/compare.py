"""What ``kvmend estimate`` predicted for each recorded request, beside what the server did when it was replayed.

Predicted: the command's own parts, one request at a time; their sums must equal the figures that the command wrote.
Measured: the paired replay of the same requests on the server with the connector, and on the same server without it.
Times are client-side TTFT of requests served alone, so a TTFT saved is a prefill second saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.targets import Spread
from sembase.tokenizer import open_tokenizer
from sembase.trace.reuse_counter import ReuseCounter
from sembench.metrics.rows import RequestRow, is_clean, row_from_json, timed
from semestimate.analysis import MEMORY_BYTES
from semestimate.anywhere import AnywhereCounter
from semestimate.cost import Price
from semestimate.request import RequestReader
from semestimate.work import Work


class ComparisonError(Exception):
    """The files do not belong together; the message says which."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """One request. ``prefix_s`` is what prefix caching saves, ``reuse_s`` what reuse by default gates adds to it."""

    prompt_tokens: int
    prefix_tokens: int
    served_tokens: int
    prefix_s: float
    reuse_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One request. ``stock`` is the server without connector. Times are seconds of TTFT."""

    prompt_tokens: int
    exact_tokens: int
    reused_tokens: int
    stock_cached_tokens: int
    cold_s: float
    warm_s: float
    stock_cold_s: float
    stock_warm_s: float
    is_control: bool


@dataclass(frozen=True, slots=True)
class Pair:
    kind: str
    predicted: Predicted
    measured: Measured


def predictions(traces: Path, tokenizer: Path, estimate: Mapping[str, Any]) -> list[Predicted]:
    """In time order. Refuses an estimate whose totals are not the sums of these."""
    price = Price(**estimate["price"])
    counter, anywhere = ReuseCounter(memory_bytes=MEMORY_BYTES), AnywhereCounter()
    found, saved = [], 0.0
    for request in RequestReader(open_tokenizer(str(tokenizer))).requests([traces]):
        if request.digests is None:
            raise ComparisonError("a record shows prefixes only; record with `kvmend proxy`")
        reuse = counter.add(request.tenant, request.digests)
        planned = anywhere.add(reuse)
        missed = Work.between(reuse.prefix_tokens, reuse.prompt_tokens)
        before, saved = saved, price.net_seconds(anywhere.total.served)
        found.append(
            Predicted(
                reuse.prompt_tokens,
                reuse.prefix_tokens,
                planned.served_tokens,
                price.seconds(Work.between(0, reuse.prompt_tokens)) - price.seconds(missed),
                saved - before,
            )
        )
    figures = estimate["figures"]
    totals = (len(found), sum(each.prefix_tokens for each in found), sum(each.prompt_tokens for each in found))
    if totals != (figures["requests"], figures["prefix_tokens"], figures["prompt"]["tokens"]):
        raise ComparisonError(f"the estimate is of other traces: {totals} here; run the estimate again")
    if abs(saved - estimate["verdict"]["saved_s"]) > 1e-6 * max(1.0, abs(saved)):
        raise ComparisonError(f"the estimate says {estimate['verdict']['saved_s']} s saved, its requests {saved} s")
    return found


def measurements(result: Mapping[str, Any], stock: Mapping[str, Any], request_ids: Sequence[str]) -> list[Measured]:
    """In the order of ``request_ids``; a request that was not measured cleanly on both servers is an error."""
    ours, theirs = _rows(result), _rows(stock)
    found = []
    for request_id in request_ids:
        row, other = ours.get(request_id), theirs.get(request_id)
        if row is None or other is None or not is_clean(row) or not is_clean(other):
            raise ComparisonError(f"request {request_id} has no clean pair on both servers; run the walk again")
        warm, stock_warm = row.warm, other.warm
        assert warm is not None, "a clean pair has both arms"
        assert stock_warm is not None
        reused = 0 if row.backend is None else row.backend.reused_tokens or 0
        found.append(
            Measured(
                prompt_tokens=row.prompt_tokens,
                exact_tokens=max(0, (warm.cached_tokens or 0) - reused),
                reused_tokens=reused,
                stock_cached_tokens=stock_warm.cached_tokens or 0,
                cold_s=(timed(row.cold) or 0.0) / 1e3,
                warm_s=(timed(row.warm) or 0.0) / 1e3,
                stock_cold_s=(timed(other.cold) or 0.0) / 1e3,
                stock_warm_s=(timed(other.warm) or 0.0) / 1e3,
                is_control=row.negative_control,
            )
        )
    return found


def _rows(result: Mapping[str, Any]) -> dict[str, RequestRow]:
    rows = [row_from_json(row, f"row {number}") for number, row in enumerate(result["requests"])]
    return {row.source_id: row for row in rows}


def pairs_of(kinds: Sequence[str], predicted: Sequence[Predicted], measured: Sequence[Measured]) -> list[Pair]:
    if not len(kinds) == len(predicted) == len(measured):
        raise ComparisonError(
            f"{len(kinds)} chats sent, {len(predicted)} predicted, {len(measured)} measured; use --fresh"
        )
    return [Pair(*each) for each in zip(kinds, predicted, measured, strict=True)]


@dataclass(frozen=True, slots=True)
class Saving:
    """Seconds over some requests: ``error`` is (predicted - measured) / measured, None where nothing was saved."""

    name: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float | None:
        return (self.predicted_s - self.measured_s) / self.measured_s if abs(self.measured_s) > 1e-9 else None

    def cells(self) -> tuple[str, str, str, str]:
        error = "-" if self.error is None else f"{100 * self.error:+.1f} %"
        return self.name, f"{self.predicted_s:.2f} s", f"{self.measured_s:.2f} s", error


def savings(pairs: Iterable[Pair]) -> tuple[Saving, ...]:
    """Three ways to count the same requests."""
    each = list(pairs)

    def total(read: Callable[[Pair], float]) -> float:
        return sum(map(read, each))

    return (
        Saving(
            "prefix caching alone (stock: cold - warm)",
            total(lambda pair: pair.predicted.prefix_s),
            total(lambda pair: pair.measured.stock_cold_s - pair.measured.stock_warm_s),
        ),
        Saving(
            "reuse beyond it (stock warm - connector warm)",
            total(lambda pair: pair.predicted.reuse_s),
            total(lambda pair: pair.measured.stock_warm_s - pair.measured.warm_s),
        ),
        Saving(
            "both, on one server (connector: cold - warm)",
            total(lambda pair: pair.predicted.prefix_s + pair.predicted.reuse_s),
            total(lambda pair: pair.measured.cold_s - pair.measured.warm_s),
        ),
    )


def kind_rows(pairs: Sequence[Pair]) -> list[tuple[object, ...]]:
    """One row per kind of chat, tokens and seconds, and a last row for all."""
    rows: list[tuple[object, ...]] = []
    for kind in [*dict.fromkeys(pair.kind for pair in pairs), None]:
        chosen = [pair for pair in pairs if kind in (None, pair.kind)]
        predicted, measured = [pair.predicted for pair in chosen], [pair.measured for pair in chosen]
        both = savings(chosen)[-1]
        rows.append(
            (
                "all" if kind is None else kind,
                len(chosen),
                f"{sum(each.prompt_tokens for each in predicted):,}",
                f"{sum(each.prompt_tokens for each in measured):,}",
                f"{sum(each.prefix_tokens for each in predicted):,}",
                f"{sum(each.exact_tokens for each in measured):,}",
                f"{sum(each.served_tokens for each in predicted):,}",
                f"{sum(each.reused_tokens for each in measured):,}",
                *both.cells()[1:],
            )
        )
    return rows


KIND_COLUMNS = (
    *("kind of chat", "n", "prompt tokens pred.", "served"),
    *("prefix pred.", "exact", "reuse pred.", "confirmed"),
    *("TTFT saved pred.", "measured", "error"),
)


def connector_cost(pairs: Sequence[Pair]) -> Spread | None:
    """Cold TTFT with the connector minus without it, in seconds: what a miss costs, and how much the servers differ."""
    return Spread.of([pair.measured.cold_s - pair.measured.stock_cold_s for pair in pairs])


def read_json(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record
