"""Traces: requests as rows of blocks. Import the names below from here; their modules are loaded on first use.

- ``load_trace(path)``: a file in any known format in, columns (``BlockTrace``) out; ``stream_trace`` gives chunks.
- ``read_records(path)``, ``save_records(records, path)``: one ``TraceRecord`` at a time; ``build_trace`` gives columns.
- ``save_parquet(trace, path)``: columns to a Parquet file.
- ``ReuseCounter``: what reuse at any position could add, request by request, with the donors, from the digests that
  ``TokenRows`` gives.

``sembase.trace.anonymise`` removes text, ids and names from records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sembase.registry import load_target

if TYPE_CHECKING:
    from sembase.trace.build import build_trace
    from sembase.trace.columns import BlockTrace
    from sembase.trace.load import load_trace, read_records
    from sembase.trace.parquet import save_parquet
    from sembase.trace.record import TraceBlock, TraceRecord
    from sembase.trace.reuse_counter import ReuseCounter
    from sembase.trace.save import save_records
    from sembase.trace.stream import stream_trace
    from sembase.trace.token_rows import TokenRows

__all__ = [
    "BlockTrace",
    "ReuseCounter",
    "TokenRows",
    "TraceBlock",
    "TraceRecord",
    "build_trace",
    "load_trace",
    "read_records",
    "save_parquet",
    "save_records",
    "stream_trace",
]
_MODULES: Final = {
    "BlockTrace": "columns",
    "ReuseCounter": "reuse_counter",
    "TokenRows": "token_rows",
    "TraceBlock": "record",
    "TraceRecord": "record",
    "build_trace": "build",
    "load_trace": "load",
    "read_records": "load",
    "save_parquet": "parquet",
    "save_records": "save",
    "stream_trace": "stream",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sembase.trace' has no attribute '{name}'")
    return load_target(f"sembase.trace.{_MODULES[name]}:{name}")
