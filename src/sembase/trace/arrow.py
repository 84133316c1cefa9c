"""The one importer of pyarrow (extra ``simulator``): opening Parquet files and knowing which of ours one is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError, ContractError, MissingDependencyError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError:  # the base install
    pa = pq = None

__all__ = [
    "ABOUT_KEY",
    "RECORDS_KIND",
    "TRACE_KIND",
    "about_file",
    "open_parquet",
    "pa",
    "parquet_kind",
    "pq",
    "require_pyarrow",
]

TRACE_KIND: Final = "semantic_kv.block_trace.v1"
RECORDS_KIND: Final = "semantic_kv.trace.v1"
ABOUT_KEY: Final = b"semantic_kv"


def require_pyarrow() -> None:
    if pq is None:
        raise MissingDependencyError("pyarrow", "simulator", "reading and writing Parquet")


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    require_pyarrow()
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowInvalid as error:
        raise ContractError(f"{path.name}: not a readable Parquet file: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None


def parquet_kind(path: Path) -> str:
    with open_parquet(path) as file:
        return str(about_file(file, path)["kind"])


def about_file(file: Any, path: Path, kind: str | None = None) -> dict[str, Any]:
    """What the file says of itself; refused where it is none of ours, or not of the kind asked for."""
    raw = (file.schema_arrow.metadata or {}).get(ABOUT_KEY, b"{}")
    try:
        about = json.loads(raw)
    except ValueError:
        about = {}
    wanted = (kind,) if kind else (TRACE_KIND, RECORDS_KIND)
    if not isinstance(about, dict) or about.get("kind") not in wanted:
        raise ContractError(f"{path.name}: a Parquet file, but no {' or '.join(wanted)} of this project")
    return about
