"""Build ``.engines/routers``: the registry packages ``sglang-router`` and ``vllm-router``, for the router benchmarks.

Run ``python -m scripts.engines.routers``. Both are Rust binaries behind a thin Python launcher and share one
environment: their dependencies are the same few web packages. Safe to repeat: a stamped environment is only verified.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from scripts.private_venv import VenvRecipe, ensure_venv, is_built, run_python

RECIPE = VenvRecipe("routers", packages=("sglang-router==0.3.2", "vllm-router==0.1.16"))

VERIFY = """
import importlib.metadata as metadata, json
import sglang_router.launch_router, vllm_router.launch_router
print(json.dumps({name: metadata.version(name) for name in ("sglang-router", "vllm-router")}))
"""


def is_installed() -> bool:
    return is_built(RECIPE)


def build() -> Path:
    """The interpreter of the environment that holds both routers."""
    return ensure_venv(RECIPE)


def verify() -> dict[str, str]:
    """Import both launchers in that environment; their versions."""
    versions: dict[str, str] = json.loads(run_python(RECIPE, VERIFY).splitlines()[-1])
    return versions


def main() -> int:
    argparse.ArgumentParser(description=__doc__.partition("\n\n")[0]).parse_args()
    started = time.monotonic()
    build()
    shown = ", ".join(f"{name} {version}" for name, version in verify().items())
    print(f"[routers] ready in {time.monotonic() - started:.0f} s: {shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
