"""The traces of a study by key: in memory for one process, or as .npy columns on disk that many processes map.

On disk a trace takes as much as in memory (4 bytes per reference, about 14 per node, 48 per request), once for all
workers, because the operating system shares the pages.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from sembase.trace.columns import BlockTrace

_DESCRIPTION: Final = "trace.json"
_EMPTY_FILE: Final = 128  # bytes of a .npy header


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace, the prompt tokens of its requests, and a digest of its content."""

    trace: BlockTrace
    prompt_tokens: npt.NDArray[np.int64]
    digest: str


class TraceStore(Protocol):
    def put(self, key: str, trace: BlockTrace) -> StoredTrace: ...

    def open(self, key: str) -> StoredTrace: ...


class MemoryTraceStore:
    def __init__(self) -> None:
        self._traces: dict[str, StoredTrace] = {}

    def put(self, key: str, trace: BlockTrace) -> StoredTrace:
        self._traces[key] = stored(trace)
        return self._traces[key]

    def open(self, key: str) -> StoredTrace:
        return self._traces[key]


class DiskTraceStore:
    """``folder`` belongs to one study; the code that created it removes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last: tuple[str, StoredTrace] | None = None

    def put(self, key: str, trace: BlockTrace) -> StoredTrace:
        held = stored(trace)
        folder = self._folder_of(key)
        folder.mkdir(parents=True)
        plain: dict[str, object] = {}
        for name, value in _columns(trace).items():
            if isinstance(value, np.ndarray):
                np.save(folder / f"{name}.npy", value)
            else:
                plain[name] = value
        np.save(folder / "prompt_tokens.npy", held.prompt_tokens)
        description = {"plain": plain, "digest": held.digest}
        (folder / _DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
        return held

    def open(self, key: str) -> StoredTrace:
        """Maps the columns copy-on-write: writable for the compiler, never written back. Keeps the last trace open."""
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        folder = self._folder_of(key)
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        columns: dict[str, Any] = dict(description["plain"])
        for field in fields(BlockTrace):
            if field.name not in columns:
                columns[field.name] = _mapped(folder / f"{field.name}.npy")
        held = StoredTrace(BlockTrace(**columns), _mapped(folder / "prompt_tokens.npy"), description["digest"])
        self._last = (key, held)
        return held

    def _folder_of(self, key: str) -> Path:
        return self.folder / hashlib.sha256(key.encode()).hexdigest()[:16]


def stored(trace: BlockTrace) -> StoredTrace:
    return StoredTrace(trace, trace.prompt_tokens(), trace_digest(trace))


def trace_digest(trace: BlockTrace) -> str:
    """Digest of the columns, not of path or name: the same requests give the same digest in any file."""
    digest = hashlib.sha256()
    for name, value in _columns(trace).items():
        if name == "name":
            continue
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value).data if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()[:32]


def _columns(trace: BlockTrace) -> dict[str, Any]:
    return {field.name: getattr(trace, field.name) for field in fields(trace)}


def _mapped(path: Path) -> npt.NDArray[Any]:
    if path.stat().st_size <= _EMPTY_FILE:  # empty after the header: cannot be mapped
        return np.asarray(np.load(path, allow_pickle=False))
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
