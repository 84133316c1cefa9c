"""Gates on engine summaries: reuse in a row must be reported by the engine for the same request of the same run.

A summary that contradicts the rows always fails: a load in a cold arm, or for a request whose row reports no reuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sembench.gates.engine_summary import EngineEvidence, Load
from sembench.gates.evidence_join import loads_by_item, own_ids
from sembench.gates.integrity import LIVE
from sembench.gates.negative_gates import judge_negative_controls
from sembench.gates.request_ids import requests_of_result
from sembench.gates.table import LOADS
from sembench.gates.verdict import Measured, Verdict
from sembench.metrics.rows import RequestRow, is_contaminated, is_reused
from semblend.contract import Outcome

_UNLISTED: Final = "is unknown: no engine summary lists events with request ids, so nothing can be joined"


def judge_reuse(
    verdict: Verdict, engine: EngineEvidence | None, result: Mapping[str, Any], rows: Sequence[RequestRow]
) -> None:
    loads = None if engine is None else engine.loads
    joined = None if loads is None else loads_by_item(loads, rows)
    _judge_claims(verdict, engine, rows)
    if loads is not None and joined is not None:
        _judge_cold_arms(verdict, loads, rows)
        _judge_denials(verdict, joined, rows)
    judge_negative_controls(verdict, loads, result["config"], rows)
    _judge_counts(verdict, joined, rows)
    requested = verdict.request.requested
    needs_load, needs_all = "require_materialized_reuse" in requested, "require_joined_evidence" in requested
    if needs_load:
        _judge_materialized(verdict, engine, result["run"].get("evidence"), rows)
    if needs_all or needs_load:
        _judge_joined(verdict, engine, joined, rows)
    if needs_all:
        _judge_gaps(verdict, result["run"])


def _judge_claims(verdict: Verdict, engine: EngineEvidence | None, rows: Sequence[RequestRow]) -> None:
    if engine is None:
        return
    both = engine.joined_requests
    verdict.observed["joined_requests"] = None if both is None else len(own_ids(both, rows))
    if engine.claims_reuse and not both:
        verdict.failures.append(
            "an engine summary claims materialized_semantic_kv_reuse, but the events contain no request with both a "
            "semantic hit and a materialization"
        )


def _judge_cold_arms(verdict: Verdict, loads: Mapping[str, Load], rows: Sequence[RequestRow]) -> None:
    """A cold arm for which the engine loaded donor KV was not cold, even if the client saw no cached tokens."""
    cold_ids = {row.cold.request_id for row in rows if row.cold is not None and not is_contaminated(row)}
    warm = requests_of_result(list(loads), cold_ids)
    if warm:
        verdict.fail(
            "cold_arms",
            "cold_arms_with_materialization",
            "0",
            f"the engine materialized donor KV for {len(warm)} cold requests ({warm[0]} first), so they were not cold",
        )


def _judge_denials(verdict: Verdict, joined: Mapping[str, Load], rows: Sequence[RequestRow]) -> None:
    """A row may report that its load was undone. A row that reports no load at all contradicts the engine."""
    denied = [row.item_id for row in rows if row.item_id in joined and is_reused(row) is False and not _is_undone(row)]
    if denied:
        message = (
            f"the engine materialized donor KV for {len(denied)} requests whose rows report 0 reused tokens "
            f"({denied[0]} first): summary and result are from different runs"
        )
        verdict.fail("engine_summary", "denied_materializations", "0", message)


def _is_undone(row: RequestRow) -> bool:
    return row.backend is not None and row.backend.outcome == Outcome.BACKEND_DECLINED_REUSE


def _judge_counts(verdict: Verdict, joined: Mapping[str, Load] | None, rows: Sequence[RequestRow]) -> None:
    """Counted over the loads of this result's requests; tokens only up to what the row itself reports as reused."""
    for gate, name in zip(LOADS, ("events", "tokens", "units"), strict=True):
        found = None if joined is None else _total(name, joined, rows)
        verdict.judge(gate.name, Measured(found), wanted=" for requests of this result")


def _total(name: str, joined: Mapping[str, Load], rows: Sequence[RequestRow]) -> int | None:
    counts = []
    for row in rows:
        count = getattr(joined[row.item_id], name) if row.item_id in joined else None
        if count is not None:
            claimed = None if row.backend is None else row.backend.reused_tokens
            counts.append(count if name != "tokens" or claimed is None else min(count, claimed))
    return sum(counts) if counts or not joined else None


def _judge_materialized(
    verdict: Verdict, engine: EngineEvidence | None, evidence: object, rows: Sequence[RequestRow]
) -> None:
    """At least one row with confirmed reuse must have both a semantic hit and a materialization in the events."""
    gate, metric, wanted = "require_materialized_reuse", "joined_requests", "at least one request of this result"
    both = None if engine is None else engine.joined_requests
    if evidence not in LIVE:
        message = f"the result's evidence is {evidence!r}, but only a live run can show reuse"
        verdict.fail(gate, metric, wanted, message)
        return
    own = None if both is None else own_ids(both, rows)
    reused = [row for row in rows if is_reused(row)]
    if both and not own:
        message = (
            f"{len(both)} requests have a semantic hit and a materialization ({both[0]} first), but none can be "
            "matched to a request of this result"
        )
        verdict.fail(gate, metric, wanted, message)
    elif own and not reused:
        message = "no row has confirmed reuse, although the engine summaries report some (run with --connector-audit)"
        verdict.fail(gate, metric, wanted, message)
    else:
        found = Measured(None if own is None else sum(row.item_id in own for row in reused))
        verdict.decide(gate, metric, found, lambda v: v > 0, f"{wanted} with both", why_missing=_UNLISTED)


def _judge_joined(
    verdict: Verdict, engine: EngineEvidence | None, joined: Mapping[str, Load] | None, rows: Sequence[RequestRow]
) -> None:
    """Every row with confirmed reuse must have a materialization of at least as many tokens."""
    gate, metric = "require_joined_evidence", "joined_reuse_share"
    confirmed = [row for row in rows if is_reused(row)]
    if not confirmed and gate not in verdict.request.requested:
        return
    if not confirmed or engine is None or joined is None:
        why = _UNLISTED if confirmed else "is missing: no row has confirmed reuse, so there is nothing to join"
        verdict.decide(gate, metric, Measured(None), lambda v: v == 1, "all of them", why_missing=why)
        return
    unjoined = [row for row in confirmed if row.item_id not in joined]
    short = [row for row in confirmed if _claims_more(row, joined)]
    backed = len(confirmed) - len(unjoined) - len(short)
    found = Measured(backed / len(confirmed), len(confirmed), backed, len(confirmed))
    wanted = "all of them" + _culprits(unjoined, short)
    if unjoined and engine.events_left_out:
        wanted += f"; the summaries dropped {engine.events_left_out} events, possibly these"
    verdict.decide(gate, metric, found, lambda v: v == 1, wanted)


def _claims_more(row: RequestRow, joined: Mapping[str, Load]) -> bool:
    load = joined.get(row.item_id)
    if load is None or load.tokens is None or row.backend is None:
        return False
    return (row.backend.reused_tokens or 0) > load.tokens


def _culprits(unjoined: Iterable[RequestRow], short: Iterable[RequestRow]) -> str:
    texts = []
    if first := next(iter(unjoined), None):
        texts.append(f"; {first.item_id} has no materialization in the engine's events")
    if first := next(iter(short), None):
        texts.append(f"; {first.item_id} claims more tokens than the engine materialized for it")
    return "".join(texts)


def _judge_gaps(verdict: Verdict, run: Mapping[str, Any]) -> None:
    """An event that never reached the run could report a load of a negative control."""
    missing = sum(_missing_events(run))
    if missing:
        message = f"{missing} engine events never reached the run, so no row reflects them"
        verdict.fail("require_joined_evidence", "missing_audit_events", "0", message)


def _missing_events(run: Mapping[str, Any]) -> Iterator[int]:
    """Counts of the run itself and of the runs it was merged from."""
    preparation = run.get("preparation")
    if isinstance(preparation, Mapping) and type(preparation.get("missing_audit_events")) is int:
        yield preparation["missing_audit_events"]
    parts = run.get("merged_from")
    for part in parts.values() if isinstance(parts, Mapping) else ():
        if isinstance(part, Mapping) and isinstance(part.get("run"), Mapping):
            yield from _missing_events(part["run"])
