"""Trace records in one JSON document: a list of records, or an object with ``requests`` and a description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sembase.errors import ContractError
from sembase.trace.files import read_document
from sembase.trace.formats.interface import record_format
from sembase.trace.record import SCHEMA, TraceRecord, parse_record

_FIELDS: Final = ("schema", "trace_id", "backend_name", "model_name", "requests", "metadata")


def records(path: Path) -> Iterator[TraceRecord]:
    document = read_document(path)
    if isinstance(document, dict):
        unknown = sorted(set(document) - set(_FIELDS))
        if unknown or document.get("schema", SCHEMA) != SCHEMA:
            raise ContractError(f"{path.name}: not a {SCHEMA} document (fields: {', '.join(sorted(document))})")
        document = document.get("requests")
    if not isinstance(document, list):
        raise ContractError(f"{path.name}: expected a list of records, or an object with 'requests'")
    for number, value in enumerate(document):
        yield parse_record(value, f"{path.name} request {number}")


def _looks_like(head: bytes) -> bool:
    """A list, or an object whose own keys come before the first record."""
    text = head.lstrip()
    outer = text.partition(b'"request_id"')[0]
    is_document = text.startswith(b"{") and (b'"trace_id"' in outer or b'"requests"' in outer)
    is_list = text.startswith(b"[") and b'"model"' not in text
    return (is_list or is_document) and b'"messages"' not in outer


FORMAT = record_format(
    "json",
    "semantic_kv.trace.v1 records in one JSON document: a list, or an object with 'requests'",
    _looks_like,
    records,
)
