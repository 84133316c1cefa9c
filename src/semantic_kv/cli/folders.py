"""New result folders, ``<timestamp>_<name>``, and the facts that results record about a run."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

from semantic_kv.experiment.cells import code_digest
from sembase.errors import ConfigurationError


def new_folder(output: Path, name: str) -> Path:
    """A new folder, also for two runs within the same second."""
    if not name or not set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."):
        raise ConfigurationError(f"invalid folder name '{name}': use letters, digits, '_', '-' and '.'")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for attempt in range(1, 1_000):
        folder = output / (f"{stamp}_{name}" if attempt == 1 else f"{stamp}-{attempt}_{name}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise ConfigurationError(f"{output} already has a thousand folders for this second; choose another --output-dir")


def run_facts() -> dict[str, str]:
    """How the results were produced."""
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "python": platform.python_version(),
        "code digest": code_digest(),
    }
