"""A named trace in, its files out: one file, a folder of rotated files, or a glob. Every command names traces this way.

A folder is every trace file below it (by suffix, plain or packed). The files of one trace may overlap in time.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError

PACKED: Final = (".gz", ".zst")
SUFFIXES: Final = (".jsonl", ".json", ".ndjson", ".csv", ".parquet", ".log")
HELP: Final = "a file, a folder of rotated files or a quoted glob"


def trace_files(named: Path | str) -> tuple[Path, ...]:
    """At least one file, sorted by path. An existing file is taken as it is, whatever its suffix."""
    path = Path(named)
    if path.is_dir():
        found = [each for each in path.rglob("*") if _is_trace_file(each) and not _is_hidden(each, path)]
        if not found:
            raise ConfigurationError(
                f"{path}: the folder contains no trace files ({', '.join(SUFFIXES)}, plain or with {', '.join(PACKED)})"
            )
    elif path.is_file() or not glob.has_magic(str(path)):
        found = [path]  # if it does not exist, opening it says so
    else:
        found = [Path(each) for each in glob.glob(str(path), recursive=True) if Path(each).is_file()]
        if not found:
            raise ConfigurationError(f"no file matches '{path}'")
    # A recorder may just have opened its next file.
    return tuple(sorted(each for each in found if len(found) == 1 or each.stat().st_size)) or (found[0],)


def _is_trace_file(path: Path) -> bool:
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name.endswith(SUFFIXES) and path.is_file()


def existing_trace(text: str) -> Path:
    """The argparse type of a flag that names a trace."""
    try:
        for path in trace_files(text):
            if not path.is_file():
                raise argparse.ArgumentTypeError(f"there is no file '{path}'")
            with path.open("rb"):
                pass
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{text}': {(error.strerror or str(error)).lower()}") from None
    return Path(text)


def trace_digest(named: Path | str) -> str:
    """The sha256 of the file; of several files, that of their sha256 in order."""
    digests = []
    for path in trace_files(named):
        with path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256"))
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
