"""The top-level members of a request body, read as leniently as engines read it."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

STRICT_BYTES: Final = 1 << 20
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def members_of(body: bytes) -> Any:
    """A large body is only scanned, not decoded (1 ms per MB), so it must be plain JSON, without NaN. Raises ValueError
    or RecursionError for what is not JSON in UTF-8."""
    if is_wide(body):
        raise ValueError("not UTF-8")
    return json.loads(body) if len(body) <= STRICT_BYTES else raw_members(body)


def raw_members(body: bytes) -> dict[str, msgspec.Raw]:
    """Of plain JSON of any size, as bytes."""
    return _MEMBERS.decode(body)


def is_wide(body: bytes) -> bool:
    """UTF-16 or UTF-32, where names are not found as bytes: JSON begins with ASCII, so with a NUL in four bytes."""
    return b"\x00" in body[:4]
