"""Starts the engines that a benchmark compares, and refuses one with other compute threads than the first.

On a CPU a difference of a thread is worth more than most of what is measured here, and vLLM chooses another number of
threads as soon as a connector is set (``semblend.doctor.cpu_threads``).
"""

from __future__ import annotations

from collections.abc import Iterable

from scripts.engines import server
from scripts.engines.server import EngineServer, ServerSpec
from scripts.engines.specs import SPECS, count_cores

from semblend.doctor import cpu_threads

_BINDING = {"vllm": cpu_threads.BINDING, "sglang": "SGLANG_CPU_OMP_THREADS_BIND"}
_UNKNOWN = "the engine's own choice"


class ThreadsDifferError(Exception):
    """Two engines of one benchmark would compute on different numbers of threads."""


class EqualThreads:
    """Of the engines that one process starts. Which cores they are bound to may differ, for replicas side by side."""

    def __init__(self) -> None:
        self._first: str | None = None

    def check(self, spec: ServerSpec) -> None:
        """Raises ``ThreadsDifferError``; other servers than engines pass."""
        if spec.name not in SPECS:
            return
        threads = _threads_of(spec)
        self._first = self._first or threads
        if threads != self._first or threads == _UNKNOWN:
            raise ThreadsDifferError(
                f"compute threads: {self._first} in the first server, {threads} in this one ({spec.name}); "
                "nothing is measured: give both the same cores or threads in their EngineOptions"
            )


_of_this_process = EqualThreads()


def launch(spec: ServerSpec) -> EngineServer:
    """Start one server and wait until it is healthy."""
    return launch_all([spec])[0]


def launch_all(specs: Iterable[ServerSpec]) -> tuple[EngineServer, ...]:
    """Start all servers, then wait for all; when one is refused or fails, none is left."""
    chosen = tuple(specs)
    for spec in chosen:
        _of_this_process.check(spec)
    return server.launch_all(chosen)


def _threads_of(spec: ServerSpec) -> str:
    binding = spec.environment.get(_BINDING[spec.name], "auto")
    threads = spec.environment.get("OMP_NUM_THREADS")
    if binding == "auto" or threads is None:
        return _UNKNOWN
    if binding == "nobind":
        return f"{threads} bound to no core"
    return (
        f"{count_cores(binding) if spec.name == 'vllm' else threads} bound"  # vLLM sets OMP_NUM_THREADS by the binding
    )
