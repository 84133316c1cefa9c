"""Section: where the figures come from, so that others can reproduce them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sembase.onepage.chart import DataTable
from sembase.onepage.formats import NOT_MEASURED
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, card, columns, table
from sembench.report.formats import plain
from sembench.report.subject import Subject

_RUN: Final = ("kind", "evidence", "items", "manifest", "manifest_digest", "max_items", "seed")
_COUNTERS: Final = "server_metrics"
_NOT_THE_ENGINES: Final = ("python_", "process_", "http_")
_SHARED_LABELS: Final = ("engine", "model_name")
_NOT_GIVEN: Final = "none"


def section(subject: Subject) -> Section:
    result = subject.result
    run: Mapping[str, Any] = result["run"]
    own = [(name, plain(run.get(name)) if run.get(name) is not None else _NOT_GIVEN) for name in _RUN]
    extra = [(name, value) for name, value in _flat(run) if name.split(".")[0] not in (*_RUN, _COUNTERS)]
    facts = [("file", subject.name), ("result version", str(result["result_version"])), *own, *extra]
    facts.append(("written", str(result["created_at_utc"])))
    engine = result["engine"]
    engine_rows = list(_flat(engine)) if isinstance(engine, Mapping) else []
    lead = "The manifest digest is its SHA-256 (sha256sum). Equal digests mean equal workloads."
    cards = [
        _card("Run", facts),
        _card("Environment", list(_flat(result["environment"]))),
        _card("Engine", engine_rows) if engine_rows else card("Engine", tag("p", "This run used no engine.")),
        _card("Configuration", list(_flat(result["config"]))),
    ]
    counters = _counters(run.get(_COUNTERS))
    if counters:
        cards.append(_card("Server counters during the run", counters))
    return Section("provenance", "Environment and provenance", lead, (columns(*cards),))


def _counters(metrics: object) -> list[tuple[str, str]]:
    """The engine's own counters that changed, with the labels that distinguish them."""
    found = metrics.get("counters") if isinstance(metrics, Mapping) else None
    rows = []
    for counter in found if isinstance(found, list) else []:
        name, delta = str(counter.get("name")), counter.get("delta")
        if not delta or name.startswith(_NOT_THE_ENGINES):
            continue
        labels = [f"{key}={value}" for key, value in (counter.get("labels") or {}).items() if key not in _SHARED_LABELS]
        rows.append((name + (f" {{{', '.join(labels)}}}" if labels else ""), plain(delta)))
    return rows


def _card(title: str, facts: list[tuple[str, str]]) -> Safe:
    return card(title, table(DataTable(("", ""), tuple(facts)), text_columns=(1,), kind="facts-table"))


def _flat(record: object, above: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names."""
    if isinstance(record, Mapping):
        for key, value in record.items():
            name = f"{above}.{key}" if above else str(key)
            if isinstance(value, Mapping) and value:
                yield from _flat(value, name)
            elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
                for number, each in enumerate(value, start=1):
                    yield from _flat(each, f"{name}.{number}")
            else:
                yield name, _value(value)


def _value(value: object) -> str:
    if value is None or value in ({}, []):
        return _NOT_GIVEN
    if isinstance(value, list):
        return ", ".join(plain(each) for each in value)
    return plain(value) if plain(value) != NOT_MEASURED else _NOT_GIVEN
