"""Finding and opening data files: .jsonl and .json, plain, gzipped or inside a .zip."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from sembase.errors import ConfigurationError

_BROKEN: Final = ""
_ENDINGS: Final = (".jsonl.gz", ".json.gz", ".jsonl", ".json")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file, or a member of a zip archive."""

    path: Path
    member: str | None = None
    folder: str = ""

    @property
    def name(self) -> str:
        return _without_ending(PurePosixPath(self.member or self.path.name).name) or ""

    @property
    def qualified_name(self) -> str:
        return f"{self.folder}/{self.name}" if self.folder else self.name

    @property
    def location(self) -> str:
        return f"{self.path}!{self.member}" if self.member else str(self.path)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """JSON objects, one per line (.jsonl) or the elements of one list (.json)."""
        try:
            with self._open() as stream:
                if ".jsonl" in PurePosixPath(self.member or self.path.name).suffixes:
                    for number, line in enumerate(stream, start=1):
                        if line.strip():
                            yield _object(_parsed(line, self.location, number), f"{self.location}:{number}")
                else:
                    for number, row in enumerate(_elements(_parsed(stream.read(), self.location, 1), self.location)):
                        yield _object(row, f"{self.location}[{number}]")
        except (EOFError, zlib.error, OSError, zipfile.BadZipFile, KeyError, RuntimeError) as error:
            raise ConfigurationError(f"{self.location}: cannot be read: {error}") from None

    def first_row(self) -> Mapping[str, Any] | None:
        return next(self.rows(), None)

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self.member is None:
            raw: IO[bytes] = self.path.open("rb")
            name = self.path.name
        else:
            with zipfile.ZipFile(self.path) as archive:
                raw = io.BytesIO(archive.read(self.member))
            name = self.member
        with raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw
            yield stream


def data_files(directory: Path) -> list[DataFile]:
    """Every data file below ``directory``, sorted, so that a build does not depend on the file system's order."""
    found: list[DataFile] = []
    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        folder = path.parent.relative_to(directory).as_posix()
        folder = "" if folder == "." else folder
        if path.suffix == ".zip":
            try:
                with zipfile.ZipFile(path) as archive:
                    members = sorted(member for member in archive.namelist() if _without_ending(member))
            except (zipfile.BadZipFile, OSError):
                found.append(DataFile(path, _BROKEN, folder))  # listed, so that reading it reports the error
                continue
            found += [DataFile(path, member, folder or path.stem) for member in members]
        elif _without_ending(path.name):
            found.append(DataFile(path, None, folder))
    return found


def is_source(path: Path, directory: Path) -> bool:
    """Whether a build from ``directory`` would read this file, under this or another name.

    A manifest in the same directory is an output, not a source.
    """
    same = [file for file in data_files(directory) if path.exists() and path.samefile(file.path)]
    return any(not _is_manifest(file) for file in same)


def _is_manifest(file: DataFile) -> bool:
    try:
        return "benchmark_version" in (file.first_row() or {})
    except ConfigurationError:
        return False


def _parsed(data: bytes, location: str, first_line: int) -> object:
    """JSON of one line or of a whole file. Errors name the line of the file, counted from 1."""
    try:
        return json.loads(data.decode("utf-8").rstrip())
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise ConfigurationError(f"{location}:{line}: not UTF-8: {error.reason}") from None
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ConfigurationError(f"{location}:{line}: not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ConfigurationError(f"{location}:{first_line}: not JSON: nested too deeply") from None


def _without_ending(name: str) -> str | None:
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), None)


def _elements(document: object, where: str) -> list[object]:
    if not isinstance(document, list):
        raise ConfigurationError(f"{where}: a .json file must hold one list of records")
    return document


def _object(row: object, where: str) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise ConfigurationError(f"{where}: not a JSON object")
    return row
