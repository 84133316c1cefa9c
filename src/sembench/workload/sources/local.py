"""Files of a directory that a reader recognises by their content: question answering sets, meetings, agent traces."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError
from sembench.workload.readers import accepted_keys, read_records, why_not
from sembench.workload.readers.files import DataFile, data_files
from sembench.workload.record import SourceRecord
from sembench.workload.sources.base import SourceRequest, Unread

_SHOWN: Final = 5


def read_local(request: SourceRequest) -> list[SourceRecord]:
    directory = require_data_dir(request, "jsonl")
    files = data_files(directory)
    if not request.datasets:
        readable = readable_files(files, directory, request, "readable file")
        return [record for file in readable for record in request.limited(read_records(file))]
    return [
        record
        for name in request.datasets
        for record in request.limited(read_records(choose_file(files, name, directory)))
    ]


def readable_files(
    files: list[DataFile], directory: Path, request: SourceRequest, what: str, *readers: str
) -> list[DataFile]:
    """Files that a reader (or one of ``readers``) accepts; others go to ``request.unread``. Raises if there is none."""
    reasons = {file: why_not(file, *readers) for file in files}
    request.unread.extend(Unread(file.location, reason) for file, reason in reasons.items() if reason is not None)
    readable = [file for file, reason in reasons.items() if reason is None]
    if not readable:
        seen = [f"{entry.file}: {entry.reason}" for entry in request.unread[:_SHOWN]]
        more = f" and {len(request.unread) - _SHOWN} more" if len(request.unread) > _SHOWN else ""
        raise ConfigurationError(
            f"--data-dir {directory} holds no {what}. "
            f"Seen: {'; '.join(seen) or 'no .jsonl, .json, .gz or .zip'}{more}. "
            f"Accepted keys ({accepted_keys(*readers)})"
        )
    return readable


def require_data_dir(request: SourceRequest, profile: str) -> Path:
    if request.data_dir is None:
        raise ConfigurationError(f"profile {profile} reads local files: pass --data-dir DIR")
    if not request.data_dir.is_dir():
        raise ConfigurationError(f"--data-dir {request.data_dir} is not a directory")
    return request.data_dir


def choose_file(files: list[DataFile], name: str, directory: Path) -> DataFile:
    """The file whose name without extensions is ``name``. ``folder/name`` selects one of several."""
    matches = [file for file in files if name in (file.name, file.qualified_name)]
    if not matches:
        available = ", ".join(file.name for file in files) or "nothing readable"
        raise ConfigurationError(f"--data-dir {directory} has no dataset '{name}'; it has: {available}")
    if len(matches) > 1:
        choices = ", ".join(file.qualified_name for file in matches)
        raise ConfigurationError(f"dataset '{name}' is ambiguous in {directory}; use one of: {choices}")
    return matches[0]
