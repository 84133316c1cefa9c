"""The files of a model in a folder, and a mark that tells models apart without reading all of their weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

CONFIG_SUFFIX: Final = "config.json"
_WEIGHT_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
_SAMPLES, _SAMPLE_BYTES = 64, 4096


def model_files(path: Path) -> list[Path]:
    """The configurations and weights of a model: of a folder, or one file. Raises ``OSError``."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file for file in files if file.name.endswith((CONFIG_SUFFIX, *_WEIGHT_SUFFIXES))]


def weights_mark(path: Path) -> str | None:
    """Of configurations, and of sizes and samples of the weights: a fine-tune has another mark, a copy the same.

    Training that changes a few rows may go unseen, so nothing that must be exact may depend on it. None: unreadable.
    """
    hasher = hashlib.sha256()
    try:
        files = model_files(path)
        for file in files:
            hasher.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            for part in _parts(file):
                hasher.update(part)
    except OSError:
        return None
    return hasher.hexdigest() if files else None


def _parts(file: Path) -> list[bytes]:
    """All of a configuration; of a file of weights, blocks that are spread evenly over it."""
    if file.name.endswith(CONFIG_SUFFIX):
        return [file.read_bytes()]
    last = max(0, file.stat().st_size - _SAMPLE_BYTES)
    with file.open("rb") as stream:
        parts = []
        for number in range(_SAMPLES):
            stream.seek(last * number // (_SAMPLES - 1))
            parts.append(stream.read(_SAMPLE_BYTES))
    return parts
