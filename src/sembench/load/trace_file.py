"""Arrival times and lengths from published traces: Azure CSV and Mooncake JSON Lines, plain or gzipped.

The kind is told by the first line. Times are seconds since the first request of the trace.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError

_AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOONCAKE: Final = ("timestamp", "input_length", "output_length")
BLOCK_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """``block_ids`` name blocks of 512 prompt tokens; equal ids are equal content. Empty if the trace has none."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()


def read_trace(path: Path) -> list[TraceEntry]:
    """In order of time. A line that is none is refused with its number."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = raw.decode("utf-8-sig").splitlines()
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--trace {path}: cannot be read: {error}") from None
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        entries = _read_mooncake(lines, path)
    elif set(_AZURE) <= {name.strip() for name in first.split(",")}:
        entries = _read_azure(lines, path)
    else:
        raise ConfigurationError(
            f"--trace {path}: neither an Azure trace (a CSV with {', '.join(_AZURE)}) "
            f"nor a Mooncake trace (JSON Lines with {', '.join(_MOONCAKE)})"
        )
    if not entries:
        raise ConfigurationError(f"--trace {path}: holds no requests")
    entries.sort(key=lambda entry: entry.at_s)
    start = entries[0].at_s
    return [TraceEntry(e.at_s - start, e.prompt_tokens, e.output_tokens, e.block_ids) for e in entries]


def _read_azure(lines: Iterable[str], path: Path) -> list[TraceEntry]:
    entries = []
    for number, row in enumerate(csv.DictReader(lines, skipinitialspace=True), start=2):
        try:
            # Seven digits of a second's fraction, one more than Python takes.
            stamp, _, fraction = row["TIMESTAMP"].strip().removesuffix("+00:00").partition(".")
            at_s = datetime.fromisoformat(stamp + "+00:00").timestamp() + float(f"0.{fraction or 0}")
            entries.append(_entry(at_s, row["ContextTokens"], row["GeneratedTokens"]))
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"--trace {path}:{number}: {error}") from None
    return entries


def _read_mooncake(lines: Iterable[str], path: Path) -> list[TraceEntry]:
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            blocks = tuple(int(block) for block in row.get("hash_ids", ()))
            entries.append(_entry(float(row["timestamp"]) / 1000.0, row["input_length"], row["output_length"], blocks))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigurationError(f"--trace {path}:{number}: {type(error).__name__}: {error}") from None
    return entries


def _entry(at_s: float, prompt: str | int, output: str | int, blocks: tuple[int, ...] = ()) -> TraceEntry:
    prompt_tokens, output_tokens = int(prompt), int(output)
    if prompt_tokens < 0 or output_tokens < 0:
        raise ValueError("a length is negative")
    # A request without a token on either side cannot be sent, and was one all the same.
    return TraceEntry(at_s, max(1, prompt_tokens), max(1, output_tokens), blocks)
