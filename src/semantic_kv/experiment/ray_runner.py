"""Run cells on Ray (extra: `ray`): each trace is put into the object store once; idle workers take the next cell."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray

from semantic_kv.experiment.cells import Cell
from semantic_kv.experiment.execute import run_cell
from semantic_kv.experiment.figures import Figures
from semantic_kv.experiment.runners import Processes
from semantic_kv.experiment.trace_store import MemoryTraceStore, StoredTrace, TraceStore
from sembase.latency import LatencyModel


class RayWorkers(Processes):
    """Starts a local Ray with ``jobs`` workers unless Ray is already initialised, for example on a cluster."""

    def trace_store(self, folder: Path) -> TraceStore:
        return MemoryTraceStore()

    def run(
        self, cells: Sequence[Cell], trace_store: TraceStore, latency: LatencyModel
    ) -> Iterator[tuple[Cell, Figures]]:
        ours = not ray.is_initialized()
        if ours:
            ray.init(num_cpus=self._jobs, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield from self._run(cells, trace_store, latency)
        finally:
            if ours:
                ray.shutdown()

    def _run(
        self, cells: Sequence[Cell], trace_store: TraceStore, latency: LatencyModel
    ) -> Iterator[tuple[Cell, Figures]]:
        traces = {key: ray.put(trace_store.open(key)) for key in dict.fromkeys(cell.trace for cell in cells)}
        actor: Any = ray.remote(num_cpus=1)(_Worker)
        idle = [actor.remote(latency) for _ in range(min(self._jobs, len(cells)))]
        busy: dict[Any, tuple[Any, Cell]] = {}
        ahead = list(reversed(cells))
        while ahead or busy:
            while ahead and idle:
                worker, cell = idle.pop(), ahead.pop()
                busy[worker.run.remote(cell, traces[cell.trace])] = (worker, cell)
            done, _ = ray.wait(list(busy), num_returns=1)
            worker, cell = busy.pop(done[0])
            idle.append(worker)
            yield cell, ray.get(done[0])


class _Worker:
    """Keeps a writable copy of the last trace: Ray's arrays are read-only, the core is compiled for writable ones."""

    def __init__(self, latency: LatencyModel) -> None:
        self._latency = latency
        self._key = ""
        self._held: StoredTrace | None = None

    def run(self, cell: Cell, held: StoredTrace) -> Figures:
        if self._held is None or self._key != cell.trace:
            self._key, self._held = cell.trace, _writable(held)
        return run_cell(cell, self._held, self._latency)


def _writable(held: StoredTrace) -> StoredTrace:
    columns = {field.name: getattr(held.trace, field.name) for field in fields(held.trace)}
    copies: dict[str, Any] = {name: np.array(value) for name, value in columns.items() if isinstance(value, np.ndarray)}
    return replace(held, trace=replace(held.trace, **copies), prompt_tokens=np.array(held.prompt_tokens))
