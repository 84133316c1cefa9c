"""The top-level members of a request body, read as leniently as engines read it."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

STRICT_BYTES: Final = 1 << 20
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def members_of(body: bytes) -> Any:
    """A large body is only scanned, not decoded (1 ms per MB), so it must be plain JSON: no NaN, no UTF-16."""
    return json.loads(body) if len(body) <= STRICT_BYTES else _MEMBERS.decode(body)
