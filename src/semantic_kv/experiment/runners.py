"""Run cells in this process, in a pool of processes, or on Ray. Runners yield figures as they finish, in any order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Final, Protocol

from semantic_kv.experiment.cells import Cell
from semantic_kv.experiment.execute import run_cell
from semantic_kv.experiment.figures import Figures
from semantic_kv.experiment.trace_store import DiskTraceStore, MemoryTraceStore, TraceStore
from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.latency import LatencyModel
from sembase.registry import load_target

Done = tuple[Cell, Figures]
_WAITING_PER_WORKER: Final = 4


class Runner(Protocol):
    def trace_store(self, folder: Path) -> TraceStore:
        """Where this runner's workers can see the traces; ``folder`` is empty and removed after the study."""
        ...

    def run(self, cells: Sequence[Cell], trace_store: TraceStore, latency: LatencyModel) -> Iterator[Done]: ...


class InProcess:
    def trace_store(self, folder: Path) -> TraceStore:
        return MemoryTraceStore()

    def run(self, cells: Sequence[Cell], trace_store: TraceStore, latency: LatencyModel) -> Iterator[Done]:
        for cell in cells:
            yield cell, run_cell(cell, trace_store.open(cell.trace), latency)


class Processes:
    """Workers are spawned, because a fork of a process with threads may hang. They map the traces from disk."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def trace_store(self, folder: Path) -> TraceStore:
        return DiskTraceStore(folder)

    def run(self, cells: Sequence[Cell], trace_store: TraceStore, latency: LatencyModel) -> Iterator[Done]:
        assert isinstance(trace_store, DiskTraceStore)
        context = multiprocessing.get_context("spawn")
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(self._jobs, context, initializer=_open_store, initargs=(trace_store.folder,))
        waiting: dict[Future[Figures], Cell] = {}
        try:
            for cell in cells:
                if len(waiting) >= _WAITING_PER_WORKER * self._jobs:
                    yield from _finished(waiting)
                waiting[pool.submit(_run_from_store, cell, latency)] = cell
            while waiting:
                yield from _finished(waiting)
        except BaseException:  # also an interrupt: do not wait for the cells that are being simulated
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


RUNNERS: Final = ("processes", "ray")


def runner_named(name: str, jobs: int) -> Runner:
    if jobs < 1:
        raise ConfigurationError(f"--jobs {jobs}: must be at least 1")
    if name not in RUNNERS:
        raise ConfigurationError(f"unknown runner '{name}'; known: {', '.join(RUNNERS)}")
    if name == "processes":
        return InProcess() if jobs == 1 else Processes(jobs)
    try:
        runner: Runner = load_target("semantic_kv.experiment.ray_runner:RayWorkers")(jobs)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(error.name or name, "ray", "--runner ray") from None
    return runner


_STORES: list[DiskTraceStore] = []  # of this worker process


def _open_store(folder: Path) -> None:
    _STORES.append(DiskTraceStore(folder))


def _run_from_store(cell: Cell, latency: LatencyModel) -> Figures:
    return run_cell(cell, _STORES[-1].open(cell.trace), latency)


def _finished(waiting: dict[Future[Figures], Cell]) -> Iterator[Done]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        yield waiting.pop(future), future.result()
