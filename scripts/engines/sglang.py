"""Build ``.engines/sglang``: SGLang on CPU from the registry, with this package and a test-only platform beside it.

Run ``python -m scripts.engines.sglang``. Safe to repeat: a stamped environment is only verified, and our package and
the plug-ins of ``tests/engines/sglang/plugins`` go in again when their metadata changed. No GPU package is needed.
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

# What SGLang imports on CPU; its own metadata asks for CUDA kernels that neither load nor are needed here.
_NEEDED = """
numpy pillow orjson psutil pybase64 requests triton starlette msgspec pydantic pyzmq tqdm ipython
aiohttp transformers==5.19.0 dill apache-tvm-ffi==0.1.11 sentencepiece==0.2.1
compressed-tensors==0.18.0 gguf anthropic blobfile==3.0.0 build datasets distro easydict einops
fastapi interegular llguidance<2,>=1.7.6 mistral_common>=1.11.5 modelscope ninja numba==0.65.1
nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4 outlines==0.1.11 packaging partial_json_parser
prometheus-client py-spy python-dateutil python-multipart regex scipy setproctitle
soundfile==0.13.1 tiktoken uvicorn>=0.51 uvloop watchfiles xxhash zstandard accelerate msgpack
setuptools
"""
_BARE = """
sglang==0.5.23 torchvision==0.28.0
xgrammar==0.2.7 timm==1.0.25 tokenizers==0.23.2 torch_memory_saver smg-grpc-servicer
"""
RECIPE = VenvRecipe("sglang", packages=("torch==2.13.0", *_NEEDED.split()), bare=tuple(_BARE.split()))

# Tests that need the engine's own classes run inside this environment.
TEST_TOOLS = ("pytest>=8.2", "hypothesis>=6.100")

PLUGINS = ROOT / "tests" / "engines" / "sglang" / "plugins"

VERIFY = """
import json, importlib.metadata as metadata
import numba, numpy, torch, semblend, semblend_sglang_testing
from sglang.srt.platforms import current_platform
assert current_platform.device_type == "cpu", current_platform
names = ("sglang", "torch", "transformers", "numpy", "numba", "semblend")
print("VERSIONS " + json.dumps({name: metadata.version(name) for name in names}))
"""


class EngineBrokenError(Exception):
    """The environment is there but does not import; the message says what was seen."""


def is_installed(recipe: VenvRecipe = RECIPE) -> bool:
    """Whether the engine and this package are in place, without importing either."""
    return is_built(recipe) and _package_stamp(recipe).is_file()


def build(recipe: VenvRecipe = RECIPE) -> Path:
    """The interpreter of an environment that holds the engine, this package and the test-only plug-ins."""
    ensure_venv(recipe)
    _silence_torchvision(recipe)
    _install_package(recipe)
    return python_of(recipe)


def verify(recipe: VenvRecipe = RECIPE) -> dict[str, str]:
    """Import the engine, this package and the platform in that environment; their versions."""
    output = run_python(recipe, VERIFY)
    for line in output.splitlines():
        if line.startswith("VERSIONS "):
            versions: dict[str, str] = json.loads(line.removeprefix("VERSIONS "))
            return versions
    raise EngineBrokenError(f"no versions in the output of {recipe.name}: {output[-500:]}")


def _silence_torchvision(recipe: VenvRecipe) -> None:
    """The registry's torchvision is a CUDA build: beside CPU torch its import dies on the operators it registers."""
    for place in folder_of(recipe).glob("lib/python*/site-packages/torchvision/_meta_registrations.py"):
        if place.stat().st_size:
            place.write_text("")


def _install_package(recipe: VenvRecipe) -> None:
    project = (ROOT / "pyproject.toml").read_bytes()
    plugins = (PLUGINS / "pyproject.toml").read_bytes()
    digest = hashlib.sha256(project + plugins + str(ROOT).encode() + " ".join(TEST_TOOLS).encode()).hexdigest()
    if has_stamp(_package_stamp(recipe), digest):
        return
    tables = tomllib.loads(project.decode())["project"]
    held = folder_of(recipe) / "engine-versions.txt"
    held.write_text(run_python(recipe, _LIST_VERSIONS))
    pip_install(recipe, ["--constraint", str(held), *tables["dependencies"], *TEST_TOOLS])
    pip_install(recipe, ["--no-deps", "--editable", str(ROOT), "--editable", str(PLUGINS)])
    _package_stamp(recipe).write_text(digest + "\n")


# Only what our dependencies could move; the whole list would freeze our own earlier choices as well.
_LIST_VERSIONS = """
import importlib.metadata as metadata
for name in ("numpy", "numba", "llvmlite", "torch", "sglang", "transformers", "tokenizers"):
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
    print(f"[sglang] ready in {time.monotonic() - started:.0f} s: {shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
