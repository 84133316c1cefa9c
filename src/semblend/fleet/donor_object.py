"""The bytes of one donor as replicas exchange them: independent of block size, cache layout and parallel layout.

A donor is cut into pages of ``PAGE_TOKENS`` tokens and a page into units, one per KV head: [layer, side, token, row].
A unit has one tag, so whatever is read can be verified: a run reads the pages it touches, a rank reads its own heads.
Head: magic, writer, seal of the tag table, tag table. Then the units, page by page.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.keys import TAG_BYTES, Seal, SpaceKeys

PAGE_TOKENS: Final = 64
WRITER_BYTES: Final = 16
_MAGIC: Final = b"SBKV\0\0\0\1"
_FIXED: Final = len(_MAGIC) + WRITER_BYTES + TAG_BYTES
_TABLE: Final = (1 << 64) - 1  # the part number of the tag table; units count from 0

KvBytes = NDArray[np.uint8]  # [layers, sides, tokens, heads, row_bytes]


@dataclass(frozen=True, slots=True)
class RowShape:
    """The KV of one token: ``row_bytes`` per layer, side and head. ``heads`` are all of the model's, of all ranks."""

    layers: int
    sides: int
    heads: int
    row_bytes: int

    @property
    def token_bytes(self) -> int:
        return self.layers * self.sides * self.heads * self.row_bytes


@dataclass(frozen=True, slots=True)
class ObjectForm:
    """Where everything of a donor of ``tokens`` tokens lies in its object; known before a byte is read."""

    shape: RowShape
    tokens: int

    @property
    def pages(self) -> int:
        return -(-self.tokens // PAGE_TOKENS)

    @property
    def head_bytes(self) -> int:
        return _FIXED + self.pages * self.shape.heads * TAG_BYTES

    @property
    def total_bytes(self) -> int:
        return self.head_bytes + self.tokens * self.shape.token_bytes

    def page_tokens(self, page: int) -> int:
        return max(0, min(PAGE_TOKENS, self.tokens - page * PAGE_TOKENS))

    def unit_bytes(self, page: int) -> int:
        return self.page_tokens(page) * self.shape.token_bytes // self.shape.heads

    def offset(self, page: int, head: int = 0) -> int:
        """``offset(pages)`` is the end of the object."""
        before = min(page * PAGE_TOKENS, self.tokens) * self.shape.token_bytes
        return self.head_bytes + before + head * self.unit_bytes(page)

    def pages_of(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The runs of pages that these ranges of tokens touch."""
        return pages_touched(ranges, PAGE_TOKENS)

    def packed(self) -> bytes:
        """The form as the seal covers it."""
        shape = self.shape
        return struct.pack("<6I", self.tokens, PAGE_TOKENS, shape.layers, shape.sides, shape.heads, shape.row_bytes)


def pages_touched(ranges: Sequence[tuple[int, int]], page_tokens: int) -> list[tuple[int, int]]:
    """The runs of pages, ``first`` to ``end``, that these ranges of tokens touch; ascending, joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        first, last = start // page_tokens, -(-end // page_tokens)
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


class SealError(Exception):
    """Bytes that no holder of the secret wrote for this place. ``writer`` is who they name as their writer."""

    def __init__(self, writer: bytes, what: str) -> None:
        super().__init__(what)
        self.writer = writer


def pack(kv: KvBytes, keys: SpaceKeys, donor_id: str, writer: bytes) -> NDArray[np.uint8]:
    """The object of a donor."""
    layers, sides, tokens, heads, row_bytes = kv.shape
    form = ObjectForm(RowShape(layers, sides, heads, row_bytes), tokens)
    seal = keys.seal(donor_id, writer, form.packed())
    data = np.empty(form.total_bytes, np.uint8)
    tags = []
    for page in range(form.pages):
        for head in range(heads):
            unit = data[form.offset(page, head) :][: form.unit_bytes(page)]
            _view(unit, form, page)[:] = _tokens_of(kv, page, head)
            tags.append(seal.tag(page * heads + head, unit))
    table = b"".join(tags)
    head_part = _MAGIC + writer + seal.tag(_TABLE, table) + table
    data[: form.head_bytes] = np.frombuffer(head_part, np.uint8)
    return data


@dataclass(frozen=True, slots=True)
class VerifiedHead:
    """The head of an object whose tag table was written by a holder of the secret."""

    form: ObjectForm
    writer: bytes
    _seal: Seal
    _tags: bytes

    def unpack(self, data: NDArray[np.uint8], first_page: int, into: KvBytes, heads: range | None = None) -> None:
        """Verify the units of whole pages, from ``first_page`` on, and put their rows in their places.

        ``heads`` are the ones that ``data`` and ``into`` hold; None: all. Raises ``SealError`` at the first unit that
        does not fit its tag; rows of earlier units are written by then.
        """
        held = range(self.form.shape.heads) if heads is None else heads
        at, page = 0, first_page
        while at < len(data):
            size = self.form.unit_bytes(page)
            for place, head in enumerate(held):
                unit = data[at : at + size]
                number = page * self.form.shape.heads + head
                if not self._seal.fits(number, unit, self._tags[number * TAG_BYTES : (number + 1) * TAG_BYTES]):
                    raise SealError(self.writer, f"page {page}, head {head} does not fit its tag")
                _tokens_of(into, page, place)[:] = _view(unit, self.form, page)
                at += size
            page += 1


def read_head(data: bytes, form: ObjectForm, keys: SpaceKeys, donor_id: str) -> VerifiedHead:
    """Raises ``SealError`` for a head of another format, donor, form or space, or written without the secret."""
    writer = writer_of(data)
    if len(data) != form.head_bytes or not data.startswith(_MAGIC):
        raise SealError(writer, "not the head of a donor object of this format")
    seal = keys.seal(donor_id, writer, form.packed())
    table = data[_FIXED:]
    if not seal.fits(_TABLE, table, data[_FIXED - TAG_BYTES : _FIXED]):
        raise SealError(writer, "the head does not fit its tag")
    return VerifiedHead(form, writer, seal, table)


def writer_of(data: bytes) -> bytes:
    """The writer that an object names, verified or not."""
    return data[len(_MAGIC) : len(_MAGIC) + WRITER_BYTES]


def _tokens_of(kv: KvBytes, page: int, head: int) -> KvBytes:
    return kv[:, :, page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS, head]


def _view(unit: NDArray[np.uint8], form: ObjectForm, page: int) -> NDArray[np.uint8]:
    shape = form.shape
    return unit.reshape(shape.layers, shape.sides, form.page_tokens(page), shape.row_bytes)
