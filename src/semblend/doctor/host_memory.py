"""How much host memory donors may take by default, from what this machine has free."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Of the free memory: on a CPU the model and the engine's own cache come out of the rest.
SHARE: Final = 4
_SMALLEST: Final = 256 << 20
_STEP: Final = 64 << 20
_UNLIMITED: Final = 1 << 60


def default_host_bytes(available: int, workers: int) -> int:
    """``host_bytes`` of each of ``workers``: a quarter of the free memory between them, in steps of 64 MiB."""
    return max(_SMALLEST, available // SHARE // max(1, workers) // _STEP * _STEP)


def available_bytes(proc: Path = Path("/proc/meminfo"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Free memory of the machine, or of the container if that is less. None where Linux does not say."""
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


def in_tokens(host_bytes: int, bytes_per_token: int) -> str:
    """One line that says what ``host_bytes`` holds."""
    return (
        f"{host_bytes / (1 << 30):.2f} GiB per worker (host_bytes) hold {host_bytes // bytes_per_token:,} tokens of "
        f"this model, at {bytes_per_token:,} bytes per token"
    )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max": no limit
        return None
