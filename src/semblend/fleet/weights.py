"""Weights by their content: the same for every copy of a model, wherever it lies and whenever it was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semblend.fleet.keys import blake3


def weights_digest(files: Sequence[Path]) -> str | None:
    """Of the files' names and all their bytes, about 3 GB/s from memory; None if one is unreadable or there is none.

    All bytes: a sample would not see a few rows that training has changed.
    """
    whole = blake3()
    try:
        for file in sorted(files, key=lambda file: file.name):
            name = file.name.encode()
            whole.update(len(name).to_bytes(4, "little") + name + blake3().update_mmap(file).digest())
    except OSError:
        return None
    return whole.hexdigest() if files else None
