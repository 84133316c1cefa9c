"""Which steps of the walk are finished, and how long each took: a file in the folder of the walk."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.console import progress


class OtherWalkError(Exception):
    """The folder holds a walk with other options."""


class Steps:
    """``run`` skips what is finished. A step that fails leaves no mark, so the next walk repeats it."""

    def __init__(self, folder: Path, options: Mapping[str, Any], *, fresh: bool = False) -> None:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "steps.json"
        state = json.loads(self._path.read_text()) if self._path.is_file() else {"options": dict(options), "steps": {}}
        if state["options"] != dict(options):
            raise OtherWalkError(
                f"{folder} holds a walk with other options ({state['options']}); use the same, or --fresh to discard it"
            )
        self._state = state
        self._save()

    def is_done(self, name: str) -> bool:
        return name in self._state["steps"]

    def run(self, name: str, work: Callable[[], None]) -> None:
        if self.is_done(name):
            progress(f"{name}: finished before, {self.seconds()[name]:.0f} s")
            return
        progress(name)
        started = time.monotonic()
        work()
        self._state["steps"][name] = time.monotonic() - started
        self._save()
        progress(f"{name}: {self.seconds()[name]:.0f} s")

    def note(self, name: str, seconds: float) -> None:
        """Time that belongs to no step, such as the start of a server; added up over attempts."""
        self._state.setdefault("other", {})
        self._state["other"][name] = self._state["other"].get(name, 0.0) + seconds
        self._save()

    def seconds(self) -> dict[str, float]:
        return {**self._state["steps"], **self._state.get("other", {})}

    def _save(self) -> None:
        scratch = self._path.with_suffix(".partial")
        scratch.write_text(json.dumps(self._state, indent=1) + "\n")
        scratch.replace(self._path)
