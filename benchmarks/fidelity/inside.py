"""The process inside the engine's environment: starts the engine, then the laboratory on it.

The engine walks through every loaded module when it starts and stumbles over numba's; so ours come after it, and it
has no connector: the laboratory calls the worker half itself.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.corpus import TOKENIZER

STEP_TOKENS = 8192


def start(model: Path) -> Any:
    vllm: Any = import_module("vllm")  # its entry point is no part of the surface our stubs describe
    return vllm.LLM(model=str(model), enforce_eager=True, max_num_batched_tokens=STEP_TOKENS, disable_log_stats=True)


def main() -> int:
    model = TOKENIZER.parent
    engine = start(model)
    from benchmarks.fidelity.laboratory import run

    return run(engine, model)


if __name__ == "__main__":
    raise SystemExit(main())
