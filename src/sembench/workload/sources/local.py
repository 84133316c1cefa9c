"""Any file of a directory that a reader recognises by its content: question answering sets, meetings, agent traces."""

from __future__ import annotations

from pathlib import Path

from sembench.workload.readers import read_records, recognise
from sembench.workload.readers.files import DataFile, data_files
from sembench.workload.record import SourceRecord
from sembench.workload.sources.base import SourceRequest
from semblend.errors import ConfigurationError


def read_local(request: SourceRequest) -> list[SourceRecord]:
    directory = require_data_dir(request, "jsonl")
    files = data_files(directory)
    if not request.datasets:
        files = [file for file in files if recognise(file) is not None]
        if not files:
            raise ConfigurationError(f"{directory} holds no file whose records sembench can read")
        return [record for file in files for record in request.limited(read_records(file))]
    return [
        record
        for name in request.datasets
        for record in request.limited(read_records(choose_file(files, name, directory)))
    ]


def require_data_dir(request: SourceRequest, profile: str) -> Path:
    if request.data_dir is None:
        raise ConfigurationError(f"profile {profile} reads local files: pass --data-dir DIR")
    if not request.data_dir.is_dir():
        raise ConfigurationError(f"--data-dir {request.data_dir} is not a directory")
    return request.data_dir


def choose_file(files: list[DataFile], name: str, directory: Path) -> DataFile:
    """The file whose name without its endings is ``name``; ``folder/name`` settles a tie."""
    matches = [file for file in files if name in (file.name, file.qualified_name)]
    if not matches:
        available = ", ".join(file.name for file in files) or "nothing readable"
        raise ConfigurationError(f"--data-dir {directory} has no dataset '{name}'; it has: {available}")
    if len(matches) > 1:
        choices = ", ".join(file.qualified_name for file in matches)
        raise ConfigurationError(f"dataset '{name}' is ambiguous in {directory}; say which: {choices}")
    return matches[0]
