"""Trace files: opened plain, as gzip or Zstandard, read line by line, written whole or not at all; the trace's name."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from sembase.errors import ConfigurationError, ContractError, MissingDependencyError
from sembase.files import replace_atomically

MAX_LINE_BYTES: Final = 256 * 2**20  # the longest line of the Claude Code trace is 11 MB
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BROKEN: Final = (gzip.BadGzipFile, zlib.error, EOFError)
_SUFFIXES: Final = (".gz", ".zst", ".jsonl", ".json", ".ndjson", ".csv", ".parquet", ".log", ".txt")


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed if it is gzip or Zstandard (detected by its first bytes). Errors name the file."""
    kind = "gzip"
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic.startswith(_GZIP_MAGIC):
                with gzip.open(raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
            elif magic == _ZSTD_MAGIC:
                kind = "Zstandard"
                with _open_zstd(raw, path) as unpacked:
                    yield unpacked
            else:
                yield raw
    except _BROKEN as error:
        raise ContractError(f"{path.name}: damaged {kind} file ({error})") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def _open_zstd(raw: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """pyarrow contains the decoder; it is optional, because plain and gzip files need no library."""
    try:
        import pyarrow  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingDependencyError("pyarrow", "simulator", f"reading {path.name}, a Zstandard file,") from None
    with pyarrow.CompressedInputStream(raw, "zstd") as stream, io.BufferedReader(stream, 1 << 20) as unpacked:
        try:
            yield cast(IO[bytes], unpacked)
        except OSError as error:
            if error.errno is None:  # pyarrow's own: the frame is damaged
                raise zlib.error(str(error)) from None
            raise


def read_head(path: Path, limit_bytes: int = 4096) -> bytes:
    with open_bytes(path) as stream:
        return stream.read(limit_bytes)


def iter_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered non-empty lines. Holds one line at a time."""
    with open_bytes(path) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise ContractError(f"{path.name} line {number}: longer than {MAX_LINE_BYTES} bytes")
            if line.strip():
                yield number, line


def iter_json_lines(path: Path) -> Iterator[tuple[str, object]]:
    """The JSON of each line with its location, for error messages."""
    for number, line in iter_lines(path):
        where = f"{path.name} line {number}"
        yield where, parse_json(line, where)


def parse_json(content: bytes, where: str) -> object:
    try:
        return json.loads(content)
    except UnicodeDecodeError:
        raise ContractError(f"{where}: not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ContractError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ContractError(f"{where}: nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise ContractError(f"{where}: {error}") from None


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes appear under ``path`` only if the block ends without an error."""
    try:
        with replace_atomically(path) as stream:
            yield stream
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be written (--output): {(error.strerror or str(error)).lower()}"
        ) from None


def trace_name(path: Path) -> str:
    """The file name without folders, wildcards and known suffixes: it must not reveal folders of a machine."""
    name = re.sub(r"[*?\[\]]+", "", path.name).strip("-_.") or path.parent.name or "trace"
    shortened = True
    while shortened:
        shortened = False
        for suffix in _SUFFIXES:
            if name.lower().endswith(suffix) and len(name) > len(suffix):
                name, shortened = name[: -len(suffix)], True
    return name
