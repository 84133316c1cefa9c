"""The process inside the engine's environment: as ``benchmarks.fidelity.inside``, with the recorder."""

from __future__ import annotations

from scripts.models.known import SMOLLM2

from benchmarks.fidelity.engine import start


def main() -> int:
    engine = start(SMOLLM2.folder)
    from benchmarks.guard.recorder import run

    return run(engine)


if __name__ == "__main__":
    raise SystemExit(main())
