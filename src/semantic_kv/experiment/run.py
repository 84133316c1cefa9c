"""A configuration in, a ``Study`` out: makes the traces, simulates cells that are not stored yet, stores each one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from semantic_kv.experiment.cells import Cell, cells_of, sampled_trace, seed_trace
from semantic_kv.experiment.config import ExperimentConfig, FileSource, WorkloadSource
from semantic_kv.experiment.figures import Figures
from semantic_kv.experiment.runners import InProcess, Runner
from semantic_kv.experiment.store import CellStore
from semantic_kv.experiment.study import Study, TraceFacts
from semantic_kv.experiment.trace_store import TraceStore
from semantic_kv.sampling import sample_trace
from semantic_kv.workload import make_workload
from sembase.errors import ConfigurationError
from sembase.progress import count_up
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace
from sembase.trace.locate import trace_files


def open_source(source: WorkloadSource | FileSource, seed: int, traces: Path) -> BlockTrace:
    """``traces`` is the folder that relative paths start at."""
    if isinstance(source, WorkloadSource):
        return make_workload(
            source.workload,
            seed=seed,
            sessions=source.sessions,
            requests_per_session=source.requests_per_session,
            tenants=source.tenants,
        ).trace
    path = traces / source.path
    if not all(file.is_file() for file in trace_files(path)):
        raise ConfigurationError(f"trace '{path}' does not exist; set its folder with --traces")
    trace = load_trace(path, source.format, dict(source.options))
    return trace if source.most_requests is None else trace.window(0, source.most_requests)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """``output`` contains the stored cells; relative trace paths start at ``traces``."""

    output: Path
    traces: Path = Path()
    runner: Runner = field(default_factory=InProcess)
    fresh: bool = False
    quiet: bool = False


def run_study(config: ExperimentConfig, options: RunOptions) -> Study:
    return run_study_on(config, lambda seed: open_source(config.source, seed, options.traces), options)


def run_study_on(config: ExperimentConfig, trace_of: Callable[[int], BlockTrace], options: RunOptions) -> Study:
    """The same with your own traces, by seed; the source in the configuration is then only reported."""
    options.output.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".traces-", dir=options.output))
    try:
        trace_store = options.runner.trace_store(folder)
        facts = _fill(config, trace_store, trace_of)
        figures = _run_cells(config, trace_store, {each.key: each.digest for each in facts}, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sampled = _sampled_keys(config)
    return Study(config, [each for each in facts if each.key not in sampled], figures)


def _fill(config: ExperimentConfig, trace_store: TraceStore, trace_of: Callable[[int], BlockTrace]) -> list[TraceFacts]:
    facts: list[TraceFacts] = []
    seeds = {seed_trace(config, seed): seed for seed in reversed(config.seeds)}
    for key, seed in reversed(seeds.items()):
        trace = trace_of(seed)
        facts.append(_put(trace_store, key, trace))
        if seed == config.seeds[0]:
            for name, (rate, draw) in _sampled_keys(config).items():
                facts.append(_put(trace_store, name, sample_trace(trace, rate, draw)))
    return facts


def _sampled_keys(config: ExperimentConfig) -> dict[str, tuple[float, int]]:
    if config.curve is None:
        return {}
    base = seed_trace(config, config.seeds[0])
    draws = [(rate, draw) for rate in config.curve.sample_rates for draw in range(config.curve.draws)]
    return {sampled_trace(base, rate, draw): (rate, draw) for rate, draw in draws}


def _put(trace_store: TraceStore, key: str, trace: BlockTrace) -> TraceFacts:
    held = trace_store.put(key, trace)
    return TraceFacts(
        key,
        trace.name,
        held.digest,
        trace.request_count,
        trace.reference_count,
        trace.node_count,
        int(held.prompt_tokens.sum()),
        trace.block_tokens,
    )


def _run_cells(
    config: ExperimentConfig, trace_store: TraceStore, digests: Mapping[str, str], options: RunOptions
) -> dict[Cell, Figures]:
    store = CellStore(options.output, fresh=options.fresh)
    cells = {cell: cell.digest(digests[cell.trace], config.latency) for cell in cells_of(config)}
    found = {cell: kept for cell, digest in cells.items() if (kept := store.load(digest)) is not None}
    ahead = [cell for cell in cells if cell not in found]
    with count_up(config.experiment, len(ahead), quiet=options.quiet) as advance:
        for cell, figures in options.runner.run(ahead, trace_store, config.latency):
            store.keep(cells[cell], figures)
            found[cell] = figures
            advance(1)
    return {cell: found[cell] for cell in cells}
