"""Names of result folders: ``<timestamp>_<name>``, never one that exists."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

from semantic_kv.experiment.cells import code_digest
from sembase.errors import ConfigurationError


def new_folder(output: Path, name: str) -> Path:
    """Two runs within a second get two folders."""
    if not name or not set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."):
        raise ConfigurationError(f"'{name}' cannot name a folder: use letters, digits, '_', '-' and '.'")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for attempt in range(1, 1_000):
        folder = output / (f"{stamp}_{name}" if attempt == 1 else f"{stamp}-{attempt}_{name}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise ConfigurationError(f"{output} holds a thousand folders of this second; name another --output-dir")


def run_facts() -> dict[str, str]:
    """What the results say about how they were made."""
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "python": platform.python_version(),
        "code digest": code_digest(),
    }
