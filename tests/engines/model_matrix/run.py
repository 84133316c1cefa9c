"""Run variants in the real engine, one process each: names (none: all of them) in, one line of JSON per variant out.

vLLM is imported once and every variant gets a fork of that process. Run by the engine's interpreter.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "SEMBLEND_EMBEDDER": "none",
    "NUMBA_DISABLE_JIT": "1",  # prompts are short; compiling takes longer than all look-ups
    "TORCH_COMPILE_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
}
LIMIT_S = 600
# Imported by every engine; here they are imported once for all forks.
SHARED = (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.model_executor.layers.fused_moe",
    "vllm.model_executor.models.llama",
    "transformers.models.auto.modeling_auto",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True, help="file to which the lines are appended")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    import torch
    from tests.engines.model_matrix.variants import VARIANTS, by_name

    torch.set_num_threads(1)
    for name in SHARED:
        import_module(name)
    from vllm.model_executor.models import registry  # type: ignore[import-not-found]

    registry._run_in_subprocess = lambda function: function()  # a class is inspected in a process that ends anyway
    variants = [by_name(name) for name in arguments.names] or list(VARIANTS)
    with tempfile.TemporaryDirectory(prefix="matrix-") as directory:
        for variant in variants:
            started = time.monotonic()
            child = os.fork()
            if child == 0:
                _child(variant.name, Path(directory), arguments.out)
            status = _wait(child)
            if status != 0:
                from tests.engines.model_matrix.one_model import Outcome, as_json

                lost = Outcome(name=variant.name, reason=f"the process ended with status {status}")
                _append(arguments.out, as_json(lost))
            print(f"{variant.name} {time.monotonic() - started:.0f} s", flush=True)


def _child(name: str, directory: Path, out: Path) -> None:
    code = 1
    try:
        from tests.engines.model_matrix.one_model import as_json, outcome_of
        from tests.engines.model_matrix.variants import by_name

        _append(out, as_json(outcome_of(by_name(name), directory / name)))
        code = 0
    except Exception:  # noqa: BLE001 - the parent writes the outcome of a child that fails
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _append(out: Path, line: str) -> None:
    with out.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _wait(child: int) -> int | str:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


main()
