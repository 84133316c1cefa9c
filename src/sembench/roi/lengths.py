"""Prompt lengths with weights, read from a histogram, a trace, a manifest or a result."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError, ContractError
from sembase.tokenizer import open_tokenizer
from sembase.trace.files import read_head
from sembase.trace.formats import FORMATS
from sembase.trace.load import read_records, sniff_format
from sembase.trace.locate import trace_files
from sembench.manifest import decode_item

_LENGTH_NAMES: Final = ("prompt_tokens", "tokens", "length", "input_length", "contexttokens", "input_tokens")
_COUNT_NAMES: Final = ("count", "requests", "weight")

Counts = dict[int, float]


@dataclass(frozen=True, slots=True)
class LengthHistogram:
    """Number of requests by prompt tokens. ``source`` describes the input and is shown with the results."""

    counts: Mapping[int, float]
    source: str

    @property
    def requests(self) -> float:
        return sum(self.counts.values())


def read_lengths(path: Path, tokenizer: str | None = None) -> LengthHistogram:
    """CSV or JSON or JSON Lines: see docs/guides/roi.md for the columns. Traces: any format of ``sembase.trace``."""
    if is_trace(path):
        counts, source = _sum((record.prompt_tokens, 1.0) for record in read_records(path)), "trace"
    elif path.suffix.lower() == ".csv":
        counts, source = _sum(_csv_rows(path)), "histogram or trace"
    elif path.suffix.lower() == ".jsonl":
        counts, source = _json_lines(path, tokenizer)
    else:
        counts, source = _json(path)
    if not counts or not sum(counts.values()) > 0:
        raise ContractError(f"{path}: no prompt lengths found")
    return LengthHistogram(dict(sorted(counts.items())), f"{source} {path.name}")


def is_trace(path: Path) -> bool:
    """A trace with records, not a histogram, a manifest or a result."""
    files = trace_files(path)
    try:
        name = sniff_format(files[0])
    except ConfigurationError:
        return False
    if FORMATS.get(name).records is None:
        return False
    return name not in ("json", "csv") or b'"blocks"' in (head := read_head(files[0])) or b"semantic_type" in head


def _csv_rows(path: Path) -> Iterator[tuple[int, float]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        for number, row in enumerate(reader, start=2):
            yield _length_and_count(row, f"{path}:{number}")


def _json_lines(path: Path, tokenizer: str | None) -> tuple[Counts, str]:
    counts: Counts = {}
    source, encode = "trace", None
    with path.open(encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            record = _loads(line, where)
            if isinstance(record, dict) and "recipient_prompt" in record:
                source = "manifest"
                encode = encode or open_tokenizer(tokenizer).encode
                length, count = len(encode(decode_item(line, where).recipient_prompt).ids), 1.0
            else:
                length, count = _length_and_count(record, where)
            counts[length] = counts.get(length, 0.0) + count
    return counts, source


def _json(path: Path) -> tuple[Counts, str]:
    record = _loads(path.read_text(encoding="utf-8"), str(path))
    if isinstance(record, dict) and isinstance(record.get("requests"), list):
        return _sum(_length_and_count(row, f"{path}: requests") for row in record["requests"]), "requests of"
    if isinstance(record, dict):
        return _sum((_whole(key, path), _weight(value, str(path))) for key, value in record.items()), "histogram"
    if isinstance(record, list):
        rows = ((row, 1.0) if type(row) is int and row > 0 else _length_and_count(row, str(path)) for row in record)
        return _sum(rows), "histogram"
    raise ContractError(f"{path}: neither an object nor a list of lengths")


def _sum(rows: Iterable[tuple[int, float]]) -> Counts:
    counts: Counts = {}
    for length, count in rows:
        counts[length] = counts.get(length, 0.0) + count
    return counts


def _length_and_count(record: object, where: str) -> tuple[int, float]:
    """``low`` and ``high`` are the ends of a bucket; its requests are assumed to have the mean length."""
    if not isinstance(record, Mapping):
        raise ContractError(f"{where}: {record!r} is not a row with a prompt length")
    row = {str(key).strip().lower(): value for key, value in record.items() if key is not None}
    name = next((name for name in _COUNT_NAMES if name in row), None)
    count = 1.0 if name is None else _weight(row[name], where)
    if "low" in row and "high" in row:
        low, high = _whole(row["low"], where), _whole(row["high"], where)
        return max(1, round((low + high) / 2)), count
    for each in _LENGTH_NAMES:
        if each in row:
            return _whole(row[each], where), count
    raise ContractError(f"{where}: no prompt length (expected one of {', '.join(_LENGTH_NAMES)}, or low and high)")


def _whole(value: object, where: object) -> int:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number == int(number) and number > 0):
        raise ContractError(f"{where}: {value!r} is not a number of tokens")
    return int(number)


def _weight(value: object, where: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ContractError(f"{where}: {value!r} is not a number of requests")
    return number


def _loads(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{where}: not JSON: {error}") from None
