"""Save trace records as JSON Lines, JSON, CSV or Parquet, by file suffix. Reading back gives the same records."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Final

from sembase.errors import ConfigurationError
from sembase.trace.files import write_atomically
from sembase.trace.formats.record_rows import COLUMNS
from sembase.trace.parquet_records import save_records_parquet
from sembase.trace.record import SCHEMA, TraceRecord, block_as_json, record_as_json


def save_records(records: Iterable[TraceRecord], path: Path | str) -> int:
    """Returns the number of records written. ``.gz`` compresses. The file appears whole or not at all."""
    file = Path(path)
    plain = file.name.removesuffix(".gz")
    if plain.endswith(".parquet"):
        return save_records_parquet(records, file)
    write = _WRITERS.get(Path(plain).suffix)
    if write is None:
        raise ConfigurationError(f"{file}: unknown suffix; use {', '.join((*_WRITERS, '.parquet'))}")
    with write_atomically(file) as raw:
        if plain == file.name:
            return _as_text(write, records, raw)
        # No name and no time in the header: the same records give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            return _as_text(write, records, packed)


def _as_text(write: Callable[[Iterable[TraceRecord], IO[str]], int], records: Iterable[TraceRecord], raw: Any) -> int:
    text = io.TextIOWrapper(raw, "utf-8", newline="")
    written = write(records, text)
    text.flush()
    text.detach()
    return written


def _write_lines(records: Iterable[TraceRecord], stream: IO[str]) -> int:
    written = 0
    for record in records:
        stream.write(json.dumps(record_as_json(record)) + "\n")
        written += 1
    return written


def _write_document(records: Iterable[TraceRecord], stream: IO[str]) -> int:
    stream.write(f'{{"schema": "{SCHEMA}", "requests": [')
    written = 0
    for record in records:
        stream.write((",\n" if written else "\n") + json.dumps(record_as_json(record)))
        written += 1
    stream.write("\n]}\n")
    return written


def _write_rows(records: Iterable[TraceRecord], stream: IO[str]) -> int:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    written = 0
    for record in records:
        given = record_as_json(record)
        for block in record.blocks:
            cells = {
                **{k: v for k, v in given.items() if k not in ("blocks", "schema")},
                **_block_cells(block_as_json(block)),
            }
            writer.writerow(["" if cells.get(name) is None else _cell(cells[name]) for name in COLUMNS])
            given.pop("content_digests", None)  # long, and read from the first row of a request
        written += 1
    return written


def _block_cells(block: dict[str, Any]) -> dict[str, Any]:
    return {"block_metadata" if name == "metadata" else name: value for name, value in block.items()}


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


_WRITERS: Final = {".jsonl": _write_lines, ".json": _write_document, ".csv": _write_rows}
