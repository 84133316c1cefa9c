"""Private virtual environments for foreign packages: created once, recognised by a stamp, never on our own path."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.install import install

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ROOT / ".engines"

# Unconstrained, anything that depends on torch pulls several gigabytes of CUDA.
CONSTRAINTS = ("torch==2.13.0+cpu",)

# Byte code switched off makes an engine's import three times slower; our own environment must not leak into theirs.
DROPPED_VARIABLES = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"})


@dataclass(frozen=True, slots=True)
class VenvRecipe:
    """What goes into one environment.

    ``bare`` packages are installed without their dependencies, after ``packages``. Those named in ``completed`` then
    get what their own metadata asks for, except the distributions in ``left_out``.
    """

    name: str
    packages: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    stamp: str = field(init=False)

    def __post_init__(self) -> None:
        lines = ["packages", *self.packages, "bare", *self.bare, "constraints", *CONSTRAINTS]
        if self.completed:
            lines += ["completed", *self.completed, "left_out", *self.left_out]
        object.__setattr__(self, "stamp", hashlib.sha256("\n".join(lines).encode()).hexdigest())


def folder_of(recipe: VenvRecipe) -> Path:
    return ENGINES / recipe.name


def python_of(recipe: VenvRecipe) -> Path:
    return folder_of(recipe) / "bin" / "python"


def is_built(recipe: VenvRecipe) -> bool:
    return has_stamp(folder_of(recipe) / "recipe.sha256", recipe.stamp) and python_of(recipe).exists()


def ensure_venv(recipe: VenvRecipe) -> Path:
    """The environment's interpreter; builds the environment when its stamp is missing or of another recipe.

    An environment that was filled by hand with the right versions costs one look: everything is satisfied.
    """
    place = folder_of(recipe)
    if is_built(recipe):
        return python_of(recipe)
    print(f"[venv] building {place.relative_to(ROOT)} (once)", flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    if not python_of(recipe).exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    constraints = place / "constraints.txt"
    constraints.write_text("\n".join(CONSTRAINTS) + "\n")
    if recipe.packages:
        install_into(recipe, ["--constraint", str(constraints), *recipe.packages])
    if recipe.bare:
        install_into(recipe, ["--no-deps", *recipe.bare])
    wanted = [line for name in recipe.completed for line in requirements_of(recipe, name)]
    if wanted:
        install_into(recipe, ["--constraint", str(constraints), *wanted])
    (place / "recipe.sha256").write_text(recipe.stamp + "\n")
    return python_of(recipe)


def requirements_of(recipe: VenvRecipe, distribution: str) -> list[str]:
    """What an installed distribution asks for, without its extras and without what the recipe leaves out."""
    asked = run_python(recipe, f"import importlib.metadata as m, json; print(json.dumps(m.requires({distribution!r})))")
    lines: list[str] = json.loads(asked) or []
    return [line for line in lines if not re.search(r"\bextra\s*==", line) and _bare_name(line) not in recipe.left_out]


def install_into(recipe: VenvRecipe, arguments: Sequence[str]) -> None:
    shown = [a for a in arguments if "/" not in a and not a.startswith("--constraint")]
    print(f"[venv] {recipe.name}: install {_abridged(shown)}", flush=True)
    install(["--python", str(python_of(recipe)), *arguments], clean_environment())


def run_python(recipe: VenvRecipe, code: str) -> str:
    """Standard output of a piece of code in the environment, run away from the checkout so that it sees only itself."""
    command = [str(python_of(recipe)), "-c", code]
    run = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder_of(recipe), env=clean_environment()
    )
    return run.stdout


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what slows a private environment down or points it elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED_VARIABLES}
    return {**kept, **(extra or {})}


def has_stamp(stamp: Path, digest: str) -> bool:
    return stamp.is_file() and stamp.read_text().strip() == digest


def _bare_name(requirement: str) -> str:
    """``Typing_Extensions>=4`` -> ``typing-extensions``: names are compared as registries compare them."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name.group().lower()) if name else ""


def _abridged(words: Sequence[str], most: int = 12) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return " ".join(words[:most]) + more
