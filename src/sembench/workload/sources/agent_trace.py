"""Agents' LLM calls in their original order, with interleaved sessions."""

from __future__ import annotations

from sembase.errors import ConfigurationError
from sembench.workload.readers import read_records, recognise
from sembench.workload.readers.files import data_files
from sembench.workload.record import SourceRecord
from sembench.workload.sources.base import SourceRequest
from sembench.workload.sources.local import choose_file, readable_files, require_data_dir


def read_agent_traces(request: SourceRequest) -> list[SourceRecord]:
    directory = require_data_dir(request, "agent-trace")
    files = data_files(directory)
    if request.datasets:
        chosen = [choose_file(files, name, directory) for name in request.datasets]
        if strange := [file.name for file in chosen if recognise(file) != "agent"]:
            raise ConfigurationError(
                f"{', '.join(strange)}: not an agent trace (needs timestamp, input and output per call)"
            )
    else:
        chosen = readable_files(files, directory, request, "agent trace", "agent")
    return [record for file in chosen for record in request.limited(read_records(file))]
