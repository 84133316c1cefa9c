"""The process inside the engine's environment: starts the engine, then the recorder on it. See its fidelity twin."""

from __future__ import annotations

from benchmarks.corpus import TOKENIZER
from benchmarks.fidelity.inside import start


def main() -> int:
    engine = start(TOKENIZER.parent)
    from benchmarks.guard.recorder import run

    return run(engine)


if __name__ == "__main__":
    raise SystemExit(main())
