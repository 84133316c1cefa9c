"""Build ``.engines/dynamo``: Dynamo's router and mocker from the registry, without torch and without an engine.

Run ``python -m scripts.engines.dynamo``. Safe to repeat: a stamped environment is only verified.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from scripts.private_venv import VenvRecipe, ensure_venv, is_built, python_of, run_python

# The package itself comes bare: one of its requirements is a placeholder that downloads from elsewhere.
RECIPE = VenvRecipe(
    "dynamo",
    packages=(
        "ai-dynamo-runtime==1.6.1",
        "aiohttp<4",
        "certifi",
        "kubernetes<33,>=32.0.1",
        "msgspec",
        "prometheus-client<1",
        "pyzmq",
        "rapidfuzz>=3.9",  # the planner's; our evidence provider runs in this environment
        "redis<9",
        "tqdm",
        "transformers",
        "typing-extensions",
        "zstandard<1",
    ),
    bare=("ai-dynamo==1.6.1",),
)

VERIFY = """
import json, importlib.metadata as metadata
import dynamo.llm, dynamo.mocker
print(json.dumps({name: metadata.version(name) for name in ("ai-dynamo", "ai-dynamo-runtime")}))
"""


def is_installed(recipe: VenvRecipe = RECIPE) -> bool:
    """Whether the environment is in place, without importing anything from it."""
    return is_built(recipe)


def build(recipe: VenvRecipe = RECIPE) -> Path:
    """The interpreter of an environment that holds Dynamo."""
    ensure_venv(recipe)
    return python_of(recipe)


def verify(recipe: VenvRecipe = RECIPE) -> dict[str, str]:
    """Import what the benchmarks use in that environment; the versions found."""
    versions: dict[str, str] = json.loads(run_python(recipe, VERIFY).splitlines()[-1])
    return versions


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0]).parse_args()
    started = time.monotonic()
    build()
    shown = ", ".join(f"{name} {version}" for name, version in verify().items())
    print(f"[dynamo] ready in {time.monotonic() - started:.0f} s: {shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
