"""Trace records in a Parquet file, read and written one row group at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembase.trace.files import write_atomically
from sembase.trace.parquet import ABOUT_KEY, RECORDS_KIND, open_parquet, pa, parquet_kind, pq, require_pyarrow
from sembase.trace.record import (
    BLOCK_FIELDS,
    RECORD_FIELDS,
    TraceRecord,
    block_as_json,
    parse_record,
    record_as_json,
)

ROW_GROUP_RECORDS: Final = 1024
_TEXTS: Final = (
    "request_id",
    "session_id",
    "tenant_id",
    "model_name",
    "visible_reuse",
    "tokenizer",
    "content_digests",
    "block_id",
    "content_hash",
    "semantic_type",
    "text",
)
_NUMBERS: Final = ("timestamp_ms", "observed_ttft_ms", "observed_total_latency_ms")


def save_records_parquet(records: Iterable[TraceRecord], path: Path) -> int:
    """Returns the number of records written. Metadata is stored as JSON text because its keys are the user's own."""
    require_pyarrow()
    schema = _schema()
    written = 0
    source = iter(records)
    with write_atomically(path) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        while rows := [_row(record) for record in islice(source, ROW_GROUP_RECORDS)]:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            written += len(rows)
    return written


def iter_records_parquet(path: Path) -> Iterator[TraceRecord]:
    if parquet_kind(path) != RECORDS_KIND:
        raise ContractError(f"{path.name}: is a columnar trace and contains no records")
    with open_parquet(path) as file:
        number = 0
        for batch in file.iter_batches(batch_size=ROW_GROUP_RECORDS):
            for row in batch.to_pylist():
                yield parse_record(_json_row(row), f"{path.name} row {number}")
                number += 1


def _row(record: TraceRecord) -> dict[str, Any]:
    given = record_as_json(record)
    given.pop("schema")
    given["metadata"] = json.dumps(dict(record.metadata)) if record.metadata else None
    given["blocks"] = [
        {**block_as_json(block), "metadata": json.dumps(dict(block.metadata)) if block.metadata else None}
        for block in record.blocks
    ]
    return given


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    blocks = [{**block, "metadata": json.loads(block["metadata"] or "{}")} for block in row["blocks"]]
    return {**row, "metadata": json.loads(row["metadata"] or "{}"), "blocks": blocks}


def _schema() -> Any:
    block = pa.struct([(name, _kind(name)) for name in BLOCK_FIELDS])
    fields = [(name, _kind(name)) for name in RECORD_FIELDS]
    about = json.dumps({"kind": RECORDS_KIND}).encode()
    return pa.schema([*fields, ("blocks", pa.list_(block))], metadata={ABOUT_KEY: about})


def _kind(name: str) -> Any:
    if name in _NUMBERS:
        return pa.float64()
    return pa.string() if name in _TEXTS or name == "metadata" else pa.int64()
