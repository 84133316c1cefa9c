"""Where a study's requests come from: a generator with a seed, or a file in any format the loaders know."""

from __future__ import annotations

from pathlib import Path

from semantic_kv.experiment.config import FileSource, WorkloadSource
from semantic_kv.workload import make_workload
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace


def open_source(source: WorkloadSource | FileSource, seed: int, traces: Path) -> BlockTrace:
    """``traces`` is the folder in which relative paths begin."""
    if isinstance(source, WorkloadSource):
        return make_workload(
            source.workload,
            seed=seed,
            sessions=source.sessions,
            requests_per_session=source.requests_per_session,
            tenants=source.tenants,
        ).trace
    path = traces / source.path
    if not path.is_file():
        raise ConfigurationError(f"there is no trace '{path}'; name the folder that holds it with --traces")
    trace = load_trace(path, source.format, dict(source.options))
    return trace if source.most_requests is None else trace.window(0, source.most_requests)
