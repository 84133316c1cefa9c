"""The process inside the engine's environment: starts the engine, then runs the laboratory on it.

vLLM walks through every loaded module when it starts and fails on numba's, so our modules are imported after it.
"""

from __future__ import annotations

from scripts.models.known import SMOLLM2

from benchmarks.fidelity.engine import start


def main() -> int:
    model = SMOLLM2.folder
    engine = start(model)
    from benchmarks.fidelity.laboratory import run

    return run(engine, model)


if __name__ == "__main__":
    raise SystemExit(main())
