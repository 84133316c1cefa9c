"""What a carrier of donor bytes does: opaque names to bytes, read by ranges. Existing stores do the work.

A carrier is not trusted: every byte it gives is verified by its reader (``donor_object``). Every call costs time by its
own bytes, never by what is stored. ``tests/unit/semblend/fleet/test_carriers.py`` holds each carrier to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, SemBlendError
from sembase.registry import Registry


class CarrierError(SemBlendError):
    """The store cannot be reached or refuses; the caller continues without it."""


class TooShortError(CarrierError):
    """An object is complete and has fewer bytes than its reader expects: it is not what its name says."""


class Piece(NamedTuple):
    """Bytes of an object from ``offset`` on, as many as ``into`` holds."""

    offset: int
    into: NDArray[np.uint8]


class KvCarrier(Protocol):
    """Thread-safe. Names are lower-case hexadecimal digits."""

    def put(self, name: str, data: NDArray[np.uint8]) -> bool:
        """Store an object. A name that exists keeps its bytes: False. Readers see all of it or nothing."""

    def read(self, name: str, pieces: Sequence[Piece]) -> bool:
        """Fill the pieces. False if there is no such object, or its writer has not finished it; ``TooShortError`` if it
        is too short. The buffers are then undefined."""

    def drop(self, name: str) -> bool:
        """Remove an object; False if there was none."""

    def contains(self, names: Sequence[str]) -> list[bool]: ...


OpenCarrier = Callable[[str, int], KvCarrier]
CARRIERS: Final[Registry[OpenCarrier]] = Registry("fleet store")
CARRIERS.register("file", "semblend.fleet.carrier.files:FileCarrier")
CARRIERS.register("mooncake", "semblend.fleet.carrier.mooncake:MooncakeCarrier")
_NAME: Final = re.compile(r"[0-9a-f]{8,128}")


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise CarrierError(f"'{name[:80]}' is not the name of an object")
    return name


def open_carrier(url: str, max_bytes: int) -> KvCarrier:
    """The carrier of ``url``, such as ``file:///mnt/kv`` or ``mooncake://master:50051``.

    ``max_bytes`` bounds what the whole fleet keeps there, where the store has no bound of its own.
    """
    scheme, _, place = url.partition("://")
    if not scheme or not place:
        raise ConfigurationError(
            f"invalid fleet store '{url}' (expected a URL such as file:///mnt/kv or mooncake://master:50051)"
        )
    return CARRIERS.get(scheme)(place, max_bytes)
