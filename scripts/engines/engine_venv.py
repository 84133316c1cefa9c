"""An engine's environment with this package in it, editable: built, verified, reported. Used by one script per engine.

The engine is never moved by us: our own dependencies are installed under the versions the engine already has, and our
package goes in again when its metadata, or that of what goes in beside it, changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.private_venv import (
    ROOT,
    VenvRecipe,
    ensure_venv,
    folder_of,
    has_stamp,
    install_into,
    is_built,
    python_of,
    run_python,
)


class EngineBrokenError(Exception):
    """The environment is there but does not import; the message says what was seen."""


@dataclass(frozen=True, slots=True)
class EngineVenv:
    """``held``: what our dependencies could move; the whole list would freeze our own earlier choices as well.
    ``verify`` is code that imports the engine and us, ``shown`` the versions it is asked for. ``beside``: further
    projects that go in editable. ``fix`` repairs a fresh environment before our package enters."""

    recipe: VenvRecipe
    held: tuple[str, ...]
    verify: str
    shown: tuple[str, ...]
    test_tools: tuple[str, ...]
    extras: tuple[str, ...] = ()
    beside: tuple[Path, ...] = ()
    fix: Callable[[VenvRecipe], None] | None = None

    def is_installed(self) -> bool:
        """Whether the engine and this package are in place, without importing either."""
        return is_built(self.recipe) and self._package_stamp().is_file()

    def build(self) -> Path:
        """The interpreter of an environment that holds the engine and this package."""
        ensure_venv(self.recipe)
        if self.fix is not None:
            self.fix(self.recipe)
        self._install_package()
        return python_of(self.recipe)

    def versions(self) -> dict[str, str]:
        """Imports the engine and this package in that environment."""
        report = f"print('VERSIONS ' + json.dumps({{name: metadata.version(name) for name in {self.shown!r}}}))"
        output = run_python(self.recipe, f"import json, importlib.metadata as metadata\n{self.verify}\n{report}")
        for line in output.splitlines():
            if line.startswith("VERSIONS "):
                found: dict[str, str] = json.loads(line.removeprefix("VERSIONS "))
                return found
        raise EngineBrokenError(f"no versions in the output of {self.recipe.name}: {output[-500:]}")

    def main(self, description: str) -> int:
        argparse.ArgumentParser(description=description.partition("\n\n")[0]).parse_args()
        started = time.monotonic()
        self.build()
        shown = ", ".join(f"{name} {version}" for name, version in self.versions().items())
        print(f"[{self.recipe.name}] ready in {time.monotonic() - started:.0f} s: {shown}")
        return 0

    def _install_package(self) -> None:
        projects = [(place / "pyproject.toml").read_bytes() for place in (ROOT, *self.beside)]
        digest = hashlib.sha256(
            b"".join(projects) + str(ROOT).encode() + " ".join((*self.test_tools, *self.extras)).encode()
        ).hexdigest()
        if has_stamp(self._package_stamp(), digest):
            return
        tables = tomllib.loads(projects[0].decode())["project"]
        held = folder_of(self.recipe) / "engine-versions.txt"
        listed = f"for name in {self.held!r}:\n    print(f'{{name}}=={{metadata.version(name)}}')"
        held.write_text(run_python(self.recipe, f"import importlib.metadata as metadata\n{listed}"))
        wanted = [*tables["dependencies"], *self.test_tools]
        wanted += packages_of(self.extras, tables["name"], tables["optional-dependencies"])
        install_into(self.recipe, ["--constraint", str(held), *wanted])
        install_into(
            self.recipe, ["--no-deps", *(word for place in (ROOT, *self.beside) for word in ("-e", str(place)))]
        )
        self._package_stamp().write_text(digest + "\n")

    def _package_stamp(self) -> Path:
        return folder_of(self.recipe) / "package.sha256"


def packages_of(extras: Iterable[str], project: str, table: Mapping[str, Sequence[str]]) -> list[str]:
    """What the extras install. One may name others of the same project, which no registry has: ``project[other]``."""
    found: dict[str, None] = {}
    for extra in extras:
        for package in table[extra]:
            if package.startswith(f"{project}["):
                others = package.removeprefix(f"{project}[").removesuffix("]").split(",")
                found |= dict.fromkeys(packages_of((other.strip() for other in others), project, table))
            else:
                found[package] = None
    return list(found)
