"""What a namespace is made of, whatever the engine: a model by the files it was read from, records in one spelling.

Called by the adapters' ``namespace`` modules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_WEIGHT_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


def files_digest(path: Path) -> str | None:
    """Configuration bytes, and names, sizes and times of weight files; None when they cannot be read or are missing."""
    hasher = hashlib.sha256()
    try:
        if not path.exists():
            return None
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.name.endswith("config.json"):
                hasher.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
            elif file.name.endswith(_WEIGHT_SUFFIXES):
                status = file.stat()
                hasher.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    except OSError:
        return None
    return hasher.hexdigest()


def canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(dict(record), sort_keys=True, separators=(",", ":"), allow_nan=False)
