"""Trace files: opened plain, as gzip or Zstandard, read line by line, written whole or not at all; the trace's name."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, cast

from sembase.errors import ConfigurationError, ContractError, MissingDependencyError
from sembase.files import replace_atomically
from sembase.streams import write_err

MAX_LINE_BYTES: Final = 16 << 20  # a prompt of a million tokens is 4 to 8 MB of text
MAX_DOCUMENT_BYTES: Final = 64 << 20  # a JSON document is parsed as a whole, in about ten times its size
MAX_CONTAINERS: Final = 1 << 21  # objects and lists of one line or document; each takes up to 250 bytes
MAX_DAMAGED: Final = 0.01  # of the lines that are read
# Logs repeat themselves: agents' sessions pack 7 to 46 times with gzip, equal prompts 150 times; Zstandard, which sees
# further back, packs the same sessions 1,200 times and equal prompts 1,800 times.
_MAX_RATIO: Final = {"gzip": 256, "Zstandard": 4096}
_ANY_RATIO_BYTES: Final = 256 << 20  # a file may unpack to this much, however small it is
_HEAD_BYTES: Final = 4096
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
                    yield _bounded(cast(IO[bytes], unpacked), raw, path, kind)
            elif magic == _ZSTD_MAGIC:
                kind = "Zstandard"
                with _open_zstd(raw, path) as unpacked:
                    yield _bounded(unpacked, raw, path, kind)
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
    with pyarrow.CompressedInputStream(raw, "zstd") as stream:
        try:
            yield cast(IO[bytes], stream)
        except OSError as error:
            if error.errno is None:  # pyarrow's own: the frame is damaged
                raise zlib.error(str(error)) from None
            raise


def _bounded(unpacked: IO[bytes], packed: IO[bytes], path: Path, kind: str) -> IO[bytes]:
    return io.BufferedReader(_Unpacked(unpacked, packed, path.name, _MAX_RATIO[kind]), 1 << 20)


class _Unpacked(io.RawIOBase):
    """The unpacked bytes of ``packed``; an error once they are more than ``max_ratio`` times what was read for them."""

    def __init__(self, unpacked: IO[bytes], packed: IO[bytes], name: str, max_ratio: int) -> None:
        self._unpacked, self._packed, self._name, self._max_ratio = unpacked, packed, name, max_ratio
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._unpacked.read(len(buffer))
        buffer[: len(data)] = data
        self._bytes += len(data)
        if self._bytes > max(_ANY_RATIO_BYTES, self._max_ratio * self._packed.tell()):
            raise ContractError(
                f"{self._name}: unpacks to more than {self._max_ratio} times its size, unlike any log; "
                "if you trust it, unpack it first"
            )
        return len(data)


def read_head(path: Path) -> bytes:
    """The first bytes. Of JSON Lines the outlines of the whole lines in them, of the first line however long it is."""
    with open_bytes(path) as stream:
        head = stream.read(_HEAD_BYTES)
        if head.lstrip()[:1] not in (b"{", b"["):
            return head
        *whole, last = head.split(b"\n")
        if not any(map(bytes.strip, whole)):
            whole = [last + stream.readline(MAX_LINE_BYTES)]
    try:
        values = [parse_json(line, path.name) for line in whole if line.strip()]
    except ContractError:
        return head
    return b"\n".join(json.dumps(_outline(value)).encode() for value in values)


def _outline(value: object, depth: int = 4) -> object:
    """Long texts, lists and deep values cut: what is left shows the fields."""
    if isinstance(value, str):
        return value[:64]
    if isinstance(value, list):
        return [_outline(each, depth - 1) for each in value[:3]] if depth else []
    if isinstance(value, dict):
        first = islice(value.items(), 256) if depth else ()
        return {key[:64]: _outline(each, depth - 1) for key, each in first}
    return value


def json_list(path: Path) -> list[tuple[str, object]] | None:
    """The values of a file that is one JSON list, with their locations; None for JSON Lines."""
    with open_bytes(path) as stream:
        if not stream.read(64).lstrip().startswith(b"["):
            return None
    listed = cast(list[object], read_document(path))
    return [(f"{path.name} request {number}", each) for number, each in enumerate(listed)]


def read_document(path: Path) -> object:
    with open_bytes(path) as stream:
        content = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise ContractError(f"{path.name}: JSON document larger than {MAX_DOCUMENT_BYTES >> 20} MiB; use JSON Lines")
    return parse_json(content, path.name)


def read_line(stream: IO[bytes], where: str) -> bytes:
    """The next line with its end; empty after the last."""
    line = stream.readline(MAX_LINE_BYTES + 1)
    if len(line) > MAX_LINE_BYTES:
        raise ContractError(f"{where}: longer than {MAX_LINE_BYTES >> 20} MiB; remove the line")
    return line


def iter_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered non-empty lines. Holds one line at a time."""
    with open_bytes(path) as stream:
        number = 0
        while line := read_line(stream, f"{path.name} line {number + 1}"):
            number += 1
            if line.strip():
                yield number, line


def iter_json_lines(path: Path, lines: Iterable[tuple[int, bytes]] | None = None) -> Iterator[tuple[str, object]]:
    """The JSON of each line of the file, or of ``lines`` of it, with its location for error messages.

    Damaged lines are left out and reported; more than ``MAX_DAMAGED`` of them are an error. The last line of a live log
    may be cut.
    """
    read = damaged = cut = 0
    first = ""
    for number, line in iter_lines(path) if lines is None else lines:
        where = f"{path.name} line {number}"
        try:
            value = parse_json(line, where)
        except DamagedLineError as error:
            first, damaged, cut = first or str(error), damaged + 1, not line.endswith(b"\n")
            continue
        read += 1
        yield where, value
    if damaged - cut > MAX_DAMAGED * read or (damaged and not read):
        more = f"; {damaged} of {read + damaged} lines are damaged" if damaged > 1 else ""
        raise ContractError(f"{first}{more}")
    if damaged:
        write_err(f"{path.name}: {damaged} of {read + damaged} lines left out: {first}\n")


class DamagedLineError(ContractError):
    """Not JSON in UTF-8: cut or overwritten, not of another format."""


def parse_json(content: bytes, where: str) -> object:
    if content.count(b"{") + content.count(b"[") > MAX_CONTAINERS:
        raise ContractError(f"{where}: more than {MAX_CONTAINERS:,} objects and lists; split it")
    try:
        return json.loads(content)
    except UnicodeDecodeError:
        raise DamagedLineError(f"{where}: not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise DamagedLineError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
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
