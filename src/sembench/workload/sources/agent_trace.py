"""Agents' LLM calls in their original order, with interleaved sessions."""

from __future__ import annotations

from sembase.errors import ConfigurationError
from sembench.workload.readers import read_records, recognise
from sembench.workload.readers.files import DataFile, data_files
from sembench.workload.record import SourceRecord
from sembench.workload.sources.base import SourceRequest
from sembench.workload.sources.local import choose_file, readable_files, require_data_dir


def read_agent_traces(request: SourceRequest) -> list[SourceRecord]:
    files = agent_files(request, "agent-trace")
    return [record for file in files for record in request.limited(read_records(file))]


def agent_files(request: SourceRequest, profile: str) -> list[DataFile]:
    """The files of calls that the request names, or all in its directory."""
    directory = require_data_dir(request, profile)
    files = data_files(directory)
    if not request.datasets:
        return readable_files(files, directory, request, "agent trace", "agent")
    chosen = [choose_file(files, name, directory) for name in request.datasets]
    if strange := [file.name for file in chosen if recognise(file) != "agent"]:
        raise ConfigurationError(
            f"{', '.join(strange)}: not an agent trace (needs timestamp, input and output per call)"
        )
    return chosen
