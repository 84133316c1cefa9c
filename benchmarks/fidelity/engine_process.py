"""Runs a module of the bench in the engine's environment, with the engine in the same process; returns its exit
code.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from scripts.engines import vllm
from scripts.engines.specs import vllm_missing
from scripts.private_venv import ROOT, clean_environment, python_of

from benchmarks.console import progress


def run_inside(module: str, arguments: Sequence[str], threads: int = 2) -> int:
    if (missing := vllm_missing()) is not None:
        progress(f"nothing measured: {missing}")
        return 3
    environment = clean_environment(
        {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "NUMBA_DISABLE_JIT": "1",  # a plan of 1K tokens is quick as plain Python; compiling takes minutes
        }
    )
    command = [str(python_of(vllm.RECIPE)), "-P", "-m", module, *arguments]
    return subprocess.run(command, env=environment, check=False).returncode
