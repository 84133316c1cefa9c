"""Donor bytes in files of a shared file system: one file per object, in 256 folders by the first digits of its name.

There is no central list. A put looks at its own folder alone and removes the files read longest ago until the folder is
within its part of ``max_bytes``; the newest file always stays, so the bound is ``max_bytes`` or 256 objects.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.carrier.base import CarrierError, Piece, TooShortError, check_name

FOLDERS: Final = 256
# A named pipe or a device under an object's name must not block the reader.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class FileCarrier:
    """Files are readable by their owner only: KV reveals prompts. All replicas run as one user."""

    def __init__(self, root: str, max_bytes: int) -> None:
        self._root = Path(root)
        self._folder_bytes = max_bytes // FOLDERS
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CarrierError(f"fleet store {root}: {error.strerror}; make it writable for this server") from None

    def put(self, name: str, data: NDArray[np.uint8]) -> bool:
        path = self._path(name)
        if path.exists():
            return False
        temporary = path.with_name(f".{name}.{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with open(handle, "wb", buffering=0) as file:
                    left = np.ascontiguousarray(data).data.cast("B")
                    while left:
                        left = left[file.write(left) :]
                _publish(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
            self._sweep(path)
        except FileExistsError:
            return False
        except OSError as error:
            raise CarrierError(f"fleet store {self._root}: {error.strerror}") from None
        return True

    def read(self, name: str, pieces: Sequence[Piece]) -> bool:
        try:
            handle = os.open(self._path(name), _READ_FLAGS)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                return False
            raise CarrierError(f"fleet store {self._root}: {error.strerror}") from None
        try:
            is_file = stat.S_ISREG(os.fstat(handle).st_mode)
            with suppress(OSError):
                os.utime(handle)  # the order of removal
            if not is_file or not all(_fill(handle, piece) for piece in pieces):
                raise TooShortError(f"fleet store {self._root}: {name} is too short")
            return True
        except OSError as error:
            raise CarrierError(f"fleet store {self._root}: {error.strerror}") from None
        finally:
            os.close(handle)

    def drop(self, name: str) -> bool:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CarrierError(f"fleet store {self._root}: {error.strerror}") from None
        return True

    def contains(self, names: Sequence[str]) -> list[bool]:
        return [self._path(name).exists() for name in names]

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)[:2] / name

    def _sweep(self, kept: Path) -> None:
        """Temporary files of writers that died count like any other."""
        found = []
        with os.scandir(kept.parent) as entries:
            for entry in entries:
                with suppress(OSError):  # removed meanwhile
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
        held = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held <= self._folder_bytes:
                return
            if path != str(kept):
                with suppress(OSError):
                    os.unlink(path)
                held -= size


def _publish(temporary: Path, path: Path) -> None:
    """A link never replaces what another writer has put there; where there are no links, the last writer wins."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        os.rename(temporary, path)


def _fill(handle: int, piece: Piece) -> bool:
    left, offset = piece.into.data.cast("B"), piece.offset
    while left:
        read = os.preadv(handle, [left], offset)
        if not read:
            return False
        left, offset = left[read:], offset + read
    return True
