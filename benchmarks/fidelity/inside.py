"""The process inside the engine's environment: starts the engine, then runs the laboratory or the rules on it.

vLLM walks through every loaded module when it starts and fails on numba's, so our modules are imported after it.
"""

from __future__ import annotations

import argparse
import sys

from scripts.models.known import MODELS, SMOLLM2

from benchmarks.fidelity.engine import start


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--model", choices=MODELS, default=SMOLLM2.name)
    parser.add_argument("--dtype", default="auto")
    own, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    model = MODELS[own.model]
    engine = start(model.folder, own.dtype)
    if own.rules:
        from benchmarks.fidelity import rule_trial

        return rule_trial.run(engine, model)
    from benchmarks.fidelity import laboratory

    return laboratory.run(engine, model)


if __name__ == "__main__":
    raise SystemExit(main())
