"""Trace records as CSV, one block per row. Rows of one request are adjacent; its own columns are read from the first.

``metadata`` columns contain JSON. Streams: one request in memory at a time.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

from sembase.errors import ContractError
from sembase.trace.files import open_bytes, read_line
from sembase.trace.formats.interface import record_format
from sembase.trace.record import BLOCK_FIELDS, RECORD_FIELDS, TraceRecord, parse_record

BLOCK_COLUMNS: Final = tuple("block_metadata" if name == "metadata" else name for name in BLOCK_FIELDS)
COLUMNS: Final = (*RECORD_FIELDS, *BLOCK_COLUMNS)
_REQUIRED: Final = ("request_id", "semantic_type", "token_count")
_COUNTS: Final = ("token_count", "position", "output_tokens", "observed_prefix_hit_tokens", "observed_prefill_tokens")
_NUMBERS: Final = ("timestamp_ms", "observed_ttft_ms", "observed_total_latency_ms")
_JSON: Final = ("metadata", "block_metadata")


def records(path: Path) -> Iterator[TraceRecord]:
    for request_id, rows in groupby(_rows(path), key=lambda row: row[1]["request_id"]):
        numbered = list(rows)
        first_line, first = numbered[0]
        where = f"{path.name} line {first_line}"
        given = {name: first[name] for name in RECORD_FIELDS if name in first}
        # Without a timestamp a request arrives after the previous one.
        given.setdefault("timestamp_ms", float(first_line))
        blocks = [{_block_field(name): row[name] for name in row if _is_block(name)} for _, row in numbered]
        yield parse_record({**given, "request_id": request_id, "blocks": blocks}, where)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with open_bytes(path) as stream:
        reader = csv.reader(_text_lines(stream, path.name))
        try:
            header = next(reader, [])
            _check_header(header, path.name)
            for row in reader:
                where = f"{path.name} line {reader.line_num}"
                if row and len(row) != len(header):
                    raise ContractError(f"{where}: {len(row)} values for {len(header)} columns")
                if row:
                    yield reader.line_num, _values(dict(zip(header, row, strict=True)), where)
        except UnicodeDecodeError:
            raise ContractError(f"{path.name} line {reader.line_num + 1}: not UTF-8 text") from None
        except csv.Error as error:
            raise ContractError(f"{path.name} line {reader.line_num}: {error}") from None


def _text_lines(stream: IO[bytes], name: str) -> Iterator[str]:
    encoding, number = "utf-8-sig", 0
    while line := read_line(stream, f"{name} line {(number := number + 1)}"):
        yield line.decode(encoding)
        encoding = "utf-8"


def _check_header(header: list[str], name: str) -> None:
    missing = [column for column in _REQUIRED if column not in header]
    unknown = [column for column in header if column not in COLUMNS]
    if missing or unknown or len(set(header)) != len(header):
        problem = (
            f"lacks {', '.join(missing)}" if missing else f"has unknown columns {', '.join(unknown) or 'or one twice'}"
        )
        raise ContractError(f"{name} line 1: the header {problem}; known: {', '.join(COLUMNS)}")


def _values(row: dict[str, str], where: str) -> dict[str, Any]:
    """Cells as JSON values; an empty cell is unknown."""
    values: dict[str, Any] = {}
    for name, cell in row.items():
        if cell == "":
            continue
        try:
            if name in _COUNTS:
                values[name] = int(cell)
            elif name in _NUMBERS:
                values[name] = float(cell)
            else:
                values[name] = json.loads(cell) if name in _JSON else cell
        except ValueError:
            raise ContractError(f"{where}: column {name} has an invalid value {cell!r:.40}") from None
    if "request_id" not in values:
        raise ContractError(f"{where}: 'request_id' is missing")
    return values


def _is_block(column: str) -> bool:
    return column == "block_metadata" or (column in BLOCK_FIELDS and column != "metadata")


def _block_field(column: str) -> str:
    return "metadata" if column == "block_metadata" else column


def _looks_like(head: bytes) -> bool:
    header = head.partition(b"\n")[0]
    return not head.startswith(b"PAR1") and b"request_id" in header and b"token_count" in header and b"{" not in header


FORMAT = record_format(
    "csv",
    "semantic_kv.trace.v1 as CSV, one block per row; request_id, semantic_type and token_count are required",
    _looks_like,
    records,
)
