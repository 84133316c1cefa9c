"""Records of donors whose KV is in pages of the engine's own storage: tokens and a keyed tag per page, sealed.

The storage has no tags of ours, and anyone who reaches it can write to it. So a record carries them, one per page, of
the bytes that the announcing replica computed. Tags and seal are bound to donor, writer, page and space.
Record: version, seal of all that follows the writer, writer, page size, number of tokens, tokens, tags.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.donor_object import WRITER_BYTES
from semblend.fleet.keys import TAG_BYTES, Seal, SpaceKeys, new_hash

_VERSION: Final = b"\2"  # 1: donors with an object of their own
_FORM: Final = struct.Struct("<II")  # tokens of a page, of the donor
_RECORD: Final = (1 << 64) - 1  # the part number of the record; pages count from 0
_UNTAGGED: Final = bytes(TAG_BYTES)
_HEAD: Final = len(_VERSION) + TAG_BYTES + WRITER_BYTES

PageBytes = bytes | memoryview | NDArray[np.uint8]


def page_digest(page: PageBytes) -> bytes:
    """Of a page's bytes; not keyed, so it must not leave the process."""
    digest: bytes = new_hash(page).digest()
    return digest


@dataclass(frozen=True, slots=True, eq=False)
class PageRecord:
    """A record that a holder of the secret wrote for this donor."""

    donor_id: str
    tokens: NDArray[np.uint32]
    writer: bytes
    page_tokens: int
    _tags: tuple[bytes, ...]
    _seal: Seal

    @property
    def pages(self) -> int:
        return len(self._tags)

    @property
    def tagged_pages(self) -> int:
        return sum(map(self.is_tagged, range(self.pages)))

    def is_tagged(self, page: int) -> bool:
        """Whether the writer vouches for a page. What others wrote to the storage before it has no tag of its own."""
        return self._tags[page] != _UNTAGGED

    def fits(self, page: int, digest: bytes) -> bool:
        """Whether the bytes with this digest are those that the writer computed for this page."""
        return self.is_tagged(page) and compare_digest(self._tags[page], self._seal.tag(page, digest))


def pack_record(
    keys: SpaceKeys, writer: bytes, tokens: NDArray[np.uint32], page_tokens: int, digests: Sequence[bytes | None]
) -> bytes:
    """The record of a donor of whole pages; None for pages that the writer does not vouch for."""
    form = _FORM.pack(page_tokens, len(tokens))
    seal = keys.seal(keys.donor_id(tokens), writer, form)
    tags = (_UNTAGGED if digest is None else seal.tag(page, digest) for page, digest in enumerate(digests))
    body = form + tokens.astype("<u4").tobytes() + b"".join(tags)
    return _VERSION + seal.tag(_RECORD, body) + writer + body


def read_record(keys: SpaceKeys, donor_id: str, record: bytes, page_tokens: int) -> PageRecord | None:
    """None for a record of another format, donor, space or page size, or made without the secret."""
    body = record[_HEAD:]
    if record[:1] != _VERSION or len(body) < _FORM.size:
        return None
    own_page, count = _FORM.unpack_from(body)
    pages = count // page_tokens
    if own_page != page_tokens or count % page_tokens or len(body) != _FORM.size + 4 * count + TAG_BYTES * pages:
        return None
    writer = record[_HEAD - WRITER_BYTES : _HEAD]
    seal = keys.seal(donor_id, writer, body[: _FORM.size])
    if not seal.fits(_RECORD, body, record[1 : 1 + TAG_BYTES]):
        return None
    tokens = np.frombuffer(body, "<u4", count, _FORM.size).astype(np.uint32)
    if keys.donor_id(tokens) != donor_id:
        return None
    table = body[_FORM.size + 4 * count :]
    tags = tuple(table[at : at + TAG_BYTES] for at in range(0, len(table), TAG_BYTES))
    return PageRecord(donor_id, tokens, writer, page_tokens, tags, seal)
