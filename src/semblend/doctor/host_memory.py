"""How much host memory donors may take by default, and on a CPU the engine, from what this machine has free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Of the free memory: on a CPU the model and the engine's own cache come out of the rest.
SHARE: Final = 4
_SMALLEST: Final = 256 << 20
_STEP: Final = 64 << 20
_UNLIMITED: Final = 1 << 60
# On a CPU, measured with vLLM 0.32: 1.75 GiB for the API server and the core of the engine; and what a worker takes
# without weights and KV cache, at least.
SERVER_PROCESSES: Final = 2 << 30
WORKER: Final = 3 << 28
_SPARE: Final = 16  # one part of the free memory stays free: for other programs while the server starts
_LARGEST_FRACTION: Final = 0.92  # vLLM's own default


def gib(amount: int) -> str:
    return f"{amount / (1 << 30):.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuMemory:
    """Memory of a server on a CPU, in bytes. ``engine``, ``donors``, ``weights`` and ``context`` are each worker's.

    ``setting`` is what ``engine`` comes from; ``context`` is the KV of one request of the maximum length.
    """

    free: int
    workers: int
    engine: int
    setting: str
    donors: int
    weights: int
    context: int

    @property
    def text(self) -> str:
        """The sum, to print."""
        parts = f"{gib(self.engine)} for the engine ({self.setting})"
        parts += f" + {gib(self.donors)} for donors (host_bytes)" if self.donors else ""
        parts = f"{self.workers} workers x ({parts})" if self.workers > 1 else parts
        return f"{parts} + {gib(SERVER_PROCESSES)} for the server's other processes = {gib(self._needed)} GiB"

    @property
    def shortage(self) -> str:
        """Why the server cannot start; empty if it fits."""
        if self._needed > self.free:
            return (
                f"Not enough memory: {self.text}, but {gib(self.free)} GiB are free. Free some memory, or give the "
                "engine or the donors less."
            )
        smallest = self.weights + self.context + WORKER
        if smallest > self.engine:
            return (
                f"Not enough memory: {gib(self.weights)} for the weights + {gib(self.context)} for the KV of one "
                f"request of the maximum length + {gib(WORKER)} for the worker = {gib(smallest)} GiB, but the engine "
                f"has {gib(self.engine)} GiB ({self.setting}); {gib(self.free)} GiB are free. Free some memory, give "
                "the engine more, or set a smaller --max-model-len or host_bytes."
            )
        return ""

    @property
    def _needed(self) -> int:
        return self.workers * (self.engine + self.donors) + SERVER_PROCESSES


def fit_cpu(
    free: int, total: int, workers: int, *, engine: int | None = None, donors: int | None = None
) -> tuple[float, int]:
    """vLLM's ``--gpu-memory-utilization``, on a CPU the fraction of ``total`` for each worker, and its ``host_bytes``.

    ``engine`` and ``donors`` are each worker's, if the command names them.
    """
    left = max(0, free - free // _SPARE - SERVER_PROCESSES)
    if donors is None:
        donors = default_host_bytes(left, workers)
        if engine is not None:
            donors = max(_SMALLEST, min(donors, left // workers - engine))
    fraction = math.floor(1000 * (left // workers - donors) / total) / 1000
    return min(_LARGEST_FRACTION, max(0.001, fraction)), donors


def default_host_bytes(available: int, workers: int) -> int:
    """``host_bytes`` of each of ``workers``: a quarter of the free memory between them, in steps of 64 MiB."""
    return max(_SMALLEST, available // SHARE // max(1, workers) // _STEP * _STEP)


def available_bytes(proc: Path = Path("/proc/meminfo"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Free memory of the machine, or of the container if that is less. None where Linux does not say.

    What this process holds counts as taken, although a server that replaces it gets it back.
    """
    try:
        rows = dict(line.split(":", 1) for line in proc.read_text(encoding="ascii").splitlines())
        free = int(rows["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        bound, taken = _number(cgroups / limit), _number(cgroups / used)
        if bound is not None and taken is not None and bound < _UNLIMITED:
            free = min(free, max(0, bound - taken))
    return free


def weight_bytes(model: str) -> int:
    """Of the files in the model's folder; 0 for the name of a model on a hub."""
    folder = Path(model)
    files = list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))
    return sum(file.stat().st_size for file in files)


def in_tokens(host_bytes: int, bytes_per_token: int) -> str:
    """One line that says what ``host_bytes`` holds."""
    return (
        f"{gib(host_bytes)} GiB per worker (host_bytes) hold {host_bytes // bytes_per_token:,} tokens of "
        f"this model, at {bytes_per_token:,} bytes per token"
    )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max": no limit
        return None
