"""Secret names and seals of one space: the donors of one tenant under one model. A secret and an identity in, keys out.

Everything a replica writes for others carries a keyed BLAKE3 value. Without the secret a donor's id cannot be computed
from its text, entries of two tenants cannot be related, and no KV can be made that a reader accepts. Every replica that
shares donors holds the secret; stores and directories do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError

try:
    from blake3 import blake3
except ImportError:
    raise MissingDependencyError("blake3", "fleet", "sharing donors in a fleet") from None

new_hash: Final[Callable[..., Any]] = blake3
MIN_SECRET_BYTES: Final = 32
ID_BYTES: Final = 16
TAG_BYTES: Final = 16
_CONTEXT: Final = "semblend fleet space v1"  # of the key derivation; a new format of keys gets a new one


@dataclass(frozen=True, slots=True)
class SpaceKeys:
    """The keys of one space. ``space`` names it in a directory; the rest never leaves the process."""

    space: bytes
    salts: tuple[int, int]  # of anchors
    _ids: bytes
    _objects: bytes

    @classmethod
    def derive(cls, secret: bytes, identity: str) -> SpaceKeys:
        """``identity`` says what must be equal before KV may be shared, tenant included."""
        if len(secret) < MIN_SECRET_BYTES:
            raise ConfigurationError(f"the fleet's secret has {len(secret)} bytes; at least {MIN_SECRET_BYTES}")
        material = len(secret).to_bytes(4, "little") + secret + identity.encode()
        stream: bytes = new_hash(material, derive_key_context=_CONTEXT).digest(length=88)
        low, high = (int.from_bytes(stream[at : at + 8], "little") for at in (8, 16))
        return cls(stream[:8], (low, high), stream[24:56], stream[56:88])

    def donor_id(self, tokens: NDArray[np.uint32]) -> str:
        """Equal tokens have equal ids on every replica. A record whose tokens give another id is forged."""
        found: str = new_hash(tokens.astype("<u4").tobytes(), key=self._ids).hexdigest(length=ID_BYTES)
        return found

    def seal(self, donor_id: str, writer: bytes, form: bytes) -> Seal:
        """The seal of one object: of this donor, by this writer, of this form."""
        about = b"".join(len(part).to_bytes(2, "little") + part for part in (bytes.fromhex(donor_id), writer, form))
        return Seal(new_hash(about, key=self._objects).digest())


@dataclass(frozen=True, slots=True)
class Seal:
    """Makes and checks the tags of one object's parts. A part that moved to another place has another tag."""

    _key: bytes

    def tag(self, part: int, data: bytes | memoryview | NDArray[np.uint8]) -> bytes:
        made: bytes = new_hash(part.to_bytes(8, "little"), key=self._key).update(data).digest(length=TAG_BYTES)
        return made

    def fits(self, part: int, data: bytes | memoryview | NDArray[np.uint8], tag: bytes) -> bool:
        return compare_digest(self.tag(part, data), tag)
