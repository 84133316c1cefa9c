"""The simulator's benchmarks: ``python -m benchmarks.simulator speed|parity|headroom|repair|fleet``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks.simulator import fleet, headroom, parity, repair, speed

BENCHMARKS: dict[str, Callable[[Sequence[str] | None], int]] = {
    "speed": speed.main,
    "parity": parity.main,
    "headroom": headroom.main,
    "repair": repair.main,
    "fleet": fleet.main,
}


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHMARKS:
        print(f"usage: python -m benchmarks.simulator {'|'.join(BENCHMARKS)} [options]")
        return 2
    return BENCHMARKS[name](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
