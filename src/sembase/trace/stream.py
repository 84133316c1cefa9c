"""A trace in chunks, for replays that must not hold all of it: records and columnar Parquet files of any length.

Each chunk has the node columns so far, so node ids mean the same in every chunk. Load a trace in another format once
and save it with ``save_parquet``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.build import TraceBuilder, in_time_order
from sembase.trace.columns import BlockTrace
from sembase.trace.files import trace_name
from sembase.trace.load import read_records, sniff_format
from sembase.trace.locate import trace_files
from sembase.trace.parquet import TRACE_KIND, iter_parquet, parquet_kind

CHUNK_REQUESTS: Final = 8192


def stream_trace(
    path: Path | str, format: str | None = None, *, chunk_requests: int = CHUNK_REQUESTS
) -> Iterator[BlockTrace]:
    """Parquet traces come in the row groups they were saved in, records in chunks of ``chunk_requests``."""
    if chunk_requests < 1:
        raise ConfigurationError("chunk_requests must be at least 1")
    named, files = Path(path), trace_files(path)
    is_parquet = len(files) == 1 and (format or sniff_format(files[0])) == "parquet"
    if is_parquet and parquet_kind(files[0]) == TRACE_KIND:
        yield from iter_parquet(files[0])
        return
    builder = TraceBuilder(trace_name(named))
    is_empty = True
    for record in in_time_order(read_records(named, format), named.name):
        builder.add(record)
        if len(builder) == chunk_requests:
            yield builder.take()
        is_empty = False
    if len(builder):
        yield builder.take()
    if is_empty:
        raise ContractError(f"{named.name}: contains no requests")
