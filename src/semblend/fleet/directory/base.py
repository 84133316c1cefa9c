"""What a directory of fleet donors does: it names donors that may share content with a prompt, and their tokens.

It only suggests. Readers verify every record (a donor's id is a keyed hash of its tokens) and the planner compares
tokens, so stale, lost, duplicated or forged entries cost a miss and nothing else. Every call costs time by its own
anchors and donors, never by the number of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, SemBlendError
from sembase.registry import Registry


class DirectoryError(SemBlendError):
    """The directory cannot be reached or refuses; the caller continues with its own donors."""


class Directory(Protocol):
    """Thread-safe. ``space`` and anchors are keyed: entries of two spaces have nothing in common."""

    def look_up(self, space: bytes, anchors: NDArray[np.uint64]) -> list[str | None]:
        """For each anchor the donor that was announced with it last."""

    def records(self, space: bytes, donor_ids: Sequence[str]) -> list[bytes | None]:
        """What was announced with each donor."""

    def announce(self, space: bytes, donor_id: str, record: bytes, anchors: NDArray[np.uint64]) -> None:
        """Add or renew a donor. Entries that are not renewed expire or are displaced by newer ones."""

    def withdraw(self, space: bytes, donor_id: str) -> None:
        """Remove the donor's record; its anchors lead nowhere from then on."""


OpenDirectory = Callable[[str], Directory]
DIRECTORIES: Final[Registry[OpenDirectory]] = Registry("fleet directory")
DIRECTORIES.register("valkey", "semblend.fleet.directory.valkey:ValkeyDirectory")


def open_directory(url: str) -> Directory:
    """The directory of ``url``, such as ``valkey://host:6379``."""
    if not (scheme := urlsplit(url).scheme):
        raise ConfigurationError(f"invalid fleet directory '{url}' (expected a URL such as valkey://localhost:6379)")
    return DIRECTORIES.get(scheme)(url)
