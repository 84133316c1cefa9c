"""Compute threads of vLLM on a CPU, with a connector and without one, by the engine's own rule.

vLLM leaves one core per worker to its scheduler, and one more per worker if a connector is set (for NIXL), unless no
core would be left to compute: a connector takes a thread away on many cores and adds one on two. Runs in the engine's
environment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from sembase.registry import load_target

FACT: Final = "compute threads"
BINDING: Final = "VLLM_CPU_OMP_THREADS_BIND"
RESERVED: Final = "VLLM_CPU_NUM_OF_RESERVED_CPU"


@dataclass(frozen=True, slots=True)
class CpuThreads:
    """Threads of each worker; none if vLLM binds none. ``reserved``: cores of a stock server that compute nothing."""

    stock: tuple[int, ...]
    connected: tuple[int, ...]
    reserved: int

    @property
    def environment(self) -> dict[str, str]:
        """Gives a server with the connector the cores of one without; empty where it has them anyway.

        A binding or a number of cores that the user set holds for both, so that they never differ.
        """
        return {} if self.stock == self.connected else {RESERVED: str(self.reserved)}

    def describe(self, *, launched: bool) -> str:
        """``launched``: by ``kvmend serve``, which sets the environment."""
        if not self.stock:
            return "stock and with kvmend as many as OMP_NUM_THREADS says, bound to no core"
        stock, connected = (" + ".join(map(str, counts)) for counts in (self.stock, self.connected))
        setting = " ".join(f"{name}={value}" for name, value in self.environment.items())
        if not setting:
            return f"stock {stock}, with kvmend {connected}"
        if launched:
            return f"stock {stock}, with kvmend {stock} (kvmend serve sets {setting}; vLLM alone takes {connected})"
        return (
            f"stock {stock}, with kvmend {connected}: vLLM reserves other cores where a connector is set; {setting}, "
            "which kvmend serve sets, makes them equal"
        )


def read_threads(parallel: Any) -> CpuThreads | None:
    """``parallel``: vLLM's parallel configuration. None if the engine has another rule or cannot bind threads here."""
    try:
        manager = load_target("vllm.utils.ompmultiprocessing:OMPProcessManager")
        with _unlogged():
            stock, connected = (
                manager(SimpleNamespace(parallel_config=parallel, kv_transfer_config=given)) for given in (None, True)
            )
        return CpuThreads(_counts(stock), _counts(connected), int(stock.reserve_cpu_num))
    except Exception:  # noqa: BLE001 - what the engine cannot do here, it says itself when it starts
        return None


@contextmanager
def _unlogged() -> Iterator[None]:
    """The engine logs every binding it is asked for as if it were the server's."""
    log = logging.getLogger("vllm.utils.ompmultiprocessing")
    log.disabled, before = True, log.disabled
    try:
        yield
    finally:
        log.disabled = before


def _counts(manager: Any) -> tuple[int, ...]:
    return tuple(len(cores) for cores in manager.cpu_lists)
