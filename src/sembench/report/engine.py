"""Section: engine summaries, and whether every confirmed reuse in the result has an engine event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sembase.onepage.chart import DataTable
from sembase.onepage.formats import NOT_MEASURED, count, plural
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, card, chip, columns, missing, table
from sembench.gates.engine_summary import HIT, MATERIALIZED, EngineEvidence, read_engine_summaries
from sembench.gates.request_ids import requests_of_result
from sembench.report.subject import Subject, read_object


def section(paths: Sequence[Path], subjects: Sequence[Subject]) -> Section:
    title = "Engine evidence"
    if not paths:
        why = "No engine summary was given (--engine-summary), so the result was not joined with engine events."
        return Section("engine", title, "", (missing("Events per request", why),))
    summaries = [read_object(path, "an engine summary") for path in paths]
    events = [event for summary in summaries for event in summary.get("events") or [] if isinstance(event, dict)]
    engines = ", ".join(dict.fromkeys(str(summary.get("engine")) for summary in summaries))
    lead = f"{plural(len(paths), 'summary', 'summaries')} of {engines}, joined by request."
    joins = [_join(subject, events) for subject in subjects]
    return Section("engine", title, lead, (columns(_counts(paths, summaries), *joins),))


def _counts(paths: Sequence[Path], summaries: Sequence[dict[str, Any]]) -> Safe:
    """One column per summary: two summaries of the same engine may report the same events and must not be summed."""
    each = [read_engine_summaries([path]) for path in paths]
    figures: tuple[tuple[str, Callable[[EngineEvidence], int | None]], ...] = (
        ("semantic hits", lambda evidence: evidence.semantic_hits),
        ("materialization events", lambda evidence: evidence.materialization_events),
        ("materialized tokens", lambda evidence: evidence.materialized_tokens),
        ("materialized units", lambda evidence: evidence.materialized_units),
        ("error lines", lambda evidence: evidence.errors),
    )
    rows = tuple((name, *(count(figure(evidence)) for evidence in each)) for name, figure in figures)
    names = (f"{summary.get('engine')} ({path.stem})" for path, summary in zip(paths, summaries, strict=True))
    lines = [str(line) for summary in summaries for line in _errors(summary)][:5]
    shown = tag("ul", *(tag("li", tag("code", line[:300])) for line in lines)) if lines else None
    return card("What each summary counts", table(DataTable(("figure", *names), rows)), shown)


def _errors(summary: dict[str, Any]) -> list[Any]:
    errors = summary.get("errors")
    return errors if isinstance(errors, list) else []


def _join(subject: Subject, events: Sequence[dict[str, Any]]) -> Safe:
    items = {row.item_id for row in subject.rows}
    reused = {row.item_id for row in subject.rows if row.backend and row.backend.reused_tokens}
    loaded, found = (_items(events, kind, items) for kind in (MATERIALIZED, HIT))
    joined = len(reused & loaded)
    state = chip("all joined", "good") if reused and joined == len(reused) else None
    if reused and joined < len(reused):
        state = chip(f"{len(reused) - joined:,} without an event", "bad")
    orphans = len(loaded - reused)
    rows = (
        ("requests with confirmed reuse", f"{len(reused):,}" if any(r.backend for r in subject.rows) else NOT_MEASURED),
        ("of these with a materialization event", f"{joined:,}"),
        ("of these also with a semantic hit", f"{len(reused & loaded & found):,}"),
        ("materialized without confirmed reuse in the result", f"{orphans:,}"),
    )
    return card(f"Join with {subject.name}", table(DataTable(("requests", "count"), rows)), state)


def _items(events: Sequence[dict[str, Any]], kind: str, items: set[str]) -> set[str]:
    chosen = [e["request_id"] for e in events if e.get("event") == kind and isinstance(e.get("request_id"), str)]
    return set(requests_of_result(chosen, items))
