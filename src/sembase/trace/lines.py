"""Reading trace files: gzip or plain by their first bytes, line by line, with the place for complaints."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from sembase.errors import ConfigurationError, ContractError

MAX_LINE_BYTES: Final = 256 * 2**20  # the longest line of the Claude Code trace is 11 MB
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BROKEN: Final = (gzip.BadGzipFile, zlib.error, EOFError)


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed where it is gzip; what cannot be read is the user's to correct."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if is_gzip:
                with gzip.open(raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
            else:
                yield raw
    except _BROKEN as error:
        raise ContractError(f"{path.name}: damaged gzip file ({error})") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_head(path: Path, limit_bytes: int = 4096) -> bytes:
    with open_bytes(path) as stream:
        return stream.read(limit_bytes)


def iter_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that hold something. Holds one line at a time."""
    with open_bytes(path) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise ContractError(f"{path.name} line {number}: longer than {MAX_LINE_BYTES} bytes")
            if line.strip():
                yield number, line


def iter_json_lines(path: Path) -> Iterator[tuple[str, object]]:
    """Each line's JSON with where it stands."""
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
