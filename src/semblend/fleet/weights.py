"""Weights by their content: the same for every copy of a model, wherever it lies and whenever it was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semblend.fleet.keys import new_hash


def weights_digest(files: Sequence[Path]) -> str | None:
    """Of the files' names and all their bytes, about 3 GB/s from memory; None if one is unreadable or there is none.

    All bytes: a sample would not see a few rows that training has changed.
    """
    whole = new_hash()
    try:
        for file in sorted(files, key=lambda file: file.name):
            name = file.name.encode()
            whole.update(len(name).to_bytes(4, "little") + name + new_hash().update_mmap(file).digest())
    except OSError:
        return None
    digest: str = whole.hexdigest()
    return digest if files else None
