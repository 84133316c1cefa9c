"""Gates over engine summaries: what rows call reuse must be told by the engine, of the same request.

Asked or not, a summary that contradicts the rows fails: a load in a cold arm or for a negative control.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sembench.gates.engine_summary import EngineEvidence
from sembench.gates.integrity import LIVE
from sembench.gates.request_ids import item_of, requests_of_result
from sembench.gates.verdict import Measured, Verdict
from sembench.metrics.rows import RequestRow
from sembench.paired.clean import is_contaminated, is_reused

_UNLISTED: Final = "cannot be told: no engine summary lists its events per request, so nothing joins"


def judge_reuse(verdict: Verdict, engine: EngineEvidence | None, evidence: object, rows: Sequence[RequestRow]) -> None:
    loaded = None if engine is None else engine.loaded_tokens
    _judge_claims(verdict, engine, rows)
    if loaded is not None:
        _judge_cold_arms(verdict, loaded, rows)
        _judge_negatives(verdict, loaded, rows)
    if verdict.request.require_materialized_reuse:
        _judge_materialized(verdict, engine, evidence, rows)
    if verdict.request.require_joined_evidence or verdict.request.require_materialized_reuse:
        _judge_joined(verdict, engine, rows)


def _judge_claims(verdict: Verdict, engine: EngineEvidence | None, rows: Sequence[RequestRow]) -> None:
    if engine is None:
        return
    both = engine.joined_requests
    joined = None if both is None else requests_of_result(both, {row.item_id for row in rows})
    verdict.observed["joined_requests"] = None if joined is None else len(joined)
    if engine.claims_reuse and not both:
        verdict.failures.append(
            "an engine summary claims materialized_semantic_kv_reuse, but no request has both a semantic hit and a "
            "materialization in its events"
        )


def _judge_cold_arms(verdict: Verdict, loaded: Mapping[str, int | None], rows: Sequence[RequestRow]) -> None:
    """A cold arm for which the engine loaded donor KV was not cold, whatever the client saw."""
    cold_ids = {row.cold.request_id for row in rows if row.cold is not None and not is_contaminated(row)}
    warm = requests_of_result(list(loaded), cold_ids)
    if warm:
        verdict.fail(
            "cold_arms",
            "cold_arms_with_materialization",
            "0",
            f"the engine materialized donor KV for {len(warm)} cold requests ({warm[0]} first): a warm cold arm",
        )


def _judge_negatives(verdict: Verdict, loaded: Mapping[str, int | None], rows: Sequence[RequestRow]) -> None:
    """By the engine's own events, so that a row cannot keep silent about it."""
    negatives = {row.item_id for row in rows if row.negative_control}
    if not negatives or verdict.request.max_negative_control_confirmed_rate:
        return
    leaks = requests_of_result(list(loaded), negatives)
    rate = Measured(len(leaks) / len(negatives), len(negatives), len(leaks), len(negatives))
    wanted = "0" + (f"; {leaks[0]} first" if leaks else "")
    verdict.decide("must_be_zero", "negative_control_materialized_requests", rate, lambda v: v == 0, wanted)


def _judge_materialized(
    verdict: Verdict, engine: EngineEvidence | None, evidence: object, rows: Sequence[RequestRow]
) -> None:
    gate, metric, wanted = "require_materialized_reuse", "joined_requests", "at least one request of this result"
    both = None if engine is None else engine.joined_requests
    joined = None if both is None else requests_of_result(both, {row.item_id for row in rows})
    if evidence not in LIVE:
        complaint = f"the result's evidence is {evidence!r}, and only a live run can show reuse"
        verdict.fail(gate, metric, wanted, complaint)
    elif both and not joined:
        complaint = (
            f"{len(both)} requests have a semantic hit and a materialization ({both[0]} first), but none is clearly a "
            "request of this result"
        )
        verdict.fail(gate, metric, wanted, complaint)
    else:
        found = Measured(None if joined is None else len(joined))
        verdict.decide(gate, metric, found, lambda v: v > 0, f"{wanted} with both", why_missing=_UNLISTED)


def _judge_joined(verdict: Verdict, engine: EngineEvidence | None, rows: Sequence[RequestRow]) -> None:
    """Every confirmed reuse has a materialization of its own request, of at least as many tokens."""
    gate, metric = "require_joined_evidence", "joined_reuse_share"
    loaded = None if engine is None else engine.loaded_tokens
    confirmed = [row for row in rows if is_reused(row)]
    if not confirmed and not verdict.request.require_joined_evidence:
        return
    if not confirmed or engine is None or loaded is None:
        why = _UNLISTED if confirmed else "does not exist: no row has confirmed reuse, so there is nothing to join"
        verdict.decide(gate, metric, Measured(None), lambda v: v == 1, "all of them", why_missing=why)
        return
    told = _tokens_by_item(loaded, {row.item_id for row in rows})
    unjoined = [row for row in confirmed if row.item_id not in told]
    short = [row for row in confirmed if _claims_more(row, told)]
    joined = len(confirmed) - len(unjoined) - len(short)
    found = Measured(joined / len(confirmed), len(confirmed), joined, len(confirmed))
    wanted = "all of them" + _culprits(unjoined, short)
    if unjoined and engine.events_left_out:
        wanted += f"; the summaries left out {engine.events_left_out} events, perhaps these"
    verdict.decide(gate, metric, found, lambda v: v == 1, wanted)


def _tokens_by_item(loaded: Mapping[str, int | None], item_ids: set[str]) -> dict[str, int | None]:
    """A request sent twice is told of twice; the larger load is the one its row may claim."""
    told: dict[str, int | None] = {}
    for engine_id, tokens in loaded.items():
        item = item_of(engine_id, item_ids)
        if item is not None:
            known = told.get(item, 0)
            told[item] = None if tokens is None or known is None else max(known, tokens)
    return told


def _claims_more(row: RequestRow, told: Mapping[str, int | None]) -> bool:
    tokens = told.get(row.item_id)
    return tokens is not None and row.backend is not None and (row.backend.reused_tokens or 0) > tokens


def _culprits(unjoined: Iterable[RequestRow], short: Iterable[RequestRow]) -> str:
    texts = []
    if first := next(iter(unjoined), None):
        texts.append(f"; {first.item_id} has no materialization in the engine's events")
    if first := next(iter(short), None):
        texts.append(f"; {first.item_id} claims more tokens than the engine materialized for it")
    return "".join(texts)
