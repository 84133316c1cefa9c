"""Milliseconds by connector hook: where each engine process writes them, and both read as one."""

from __future__ import annotations

import json
from pathlib import Path

ROLES = ("scheduler", "worker")


def sums_path(events: Path, role: str) -> Path:
    return events.with_name(f"{events.name}.{role}.json")


def read_sums(events: Path) -> dict[str, float]:
    """Since the start, of both processes."""
    total: dict[str, float] = {}
    for path in (sums_path(events, role) for role in ROLES):
        for hook, milliseconds in (json.loads(path.read_text()) if path.exists() else {}).items():
            total[hook] = total.get(hook, 0.0) + milliseconds
    return total
