"""The event stream of a running server: a line that is still being written is left for the next reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def event_lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
