"""Numbers of a msgpack array straight into numpy: raw bytes of the array in, block hashes or token ids out.

A prompt of 4,096 tokens would otherwise become 4,096 Python objects first, which costs more than all the rest of an
event. Called by ``wire``; 1,024 token ids take about 3 us.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

MAX_BLOCKS: Final = 1 << 17  # of one event: a prompt of 128K in blocks of one token
_HEAD_BYTES: Final = {0xDC: 3, 0xDD: 5}
_FIX_ARRAY: Final = range(0x90, 0xA0)
_UNSIGNED: Final = 0xCC
_SIGNED: Final = 0xD0
_NEGATIVE: Final = 0xE0
_SHORT_BYTES: Final = 0xC4
_LONG_BYTES: Final = 0xC6
_ZERO: Final = np.uint64(0)
_ONES: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_32_BITS: Final = np.uint64(0xFFFFFFFF)
_BYTE: Final = np.uint64(8)


def read_hashes(raw: msgspec.Raw) -> NDArray[np.uint64]:
    """64 bits of each, the last eight bytes of a byte string. ``ValueError`` for elements of any other type or for more
    than ``MAX_BLOCKS``."""
    data, head, count = _array_of(raw)
    if count > MAX_BLOCKS:
        raise ValueError(f"{count} blocks in one event exceed the maximum of {MAX_BLOCKS}")
    hashes = np.empty(count, np.uint64)
    if not read_numbers(data, head, True, hashes):
        raise ValueError("block hashes must be whole numbers or bytes")
    return hashes


def read_tokens(raw: msgspec.Raw) -> NDArray[np.uint32]:
    """``ValueError`` unless each is a number from 0 to 2^32 - 1."""
    data, head, count = _array_of(raw)
    tokens = np.empty(count, np.uint32)
    if not read_numbers(data, head, False, tokens):
        raise ValueError("token ids must be whole numbers of at most 32 bits")
    return tokens


def _array_of(raw: msgspec.Raw) -> tuple[NDArray[np.uint8], int, int]:
    """The bytes, the offset of the first element, and the number of elements."""
    data = np.frombuffer(raw, np.uint8)
    first = int(data[0])
    if first in _FIX_ARRAY:
        return data, 1, first & 0x0F
    if first not in _HEAD_BYTES:
        raise ValueError("not an array")
    head = _HEAD_BYTES[first]
    count = int.from_bytes(data[1:head].tobytes(), "big")
    if count > len(data) - head:
        raise ValueError("shorter than its declared length")
    return data, head, count


@kernel
def read_numbers(
    data: NDArray[np.uint8], begin: int, are_hashes: bool, values: NDArray[np.uint64] | NDArray[np.uint32]
) -> bool:
    """Whether every element was a number of the kind; only then ``values`` is valid."""
    place = begin
    for i in range(len(values)):
        if place >= len(data):
            return False
        kind = int(data[place])
        place += 1
        if kind <= 0x7F:
            values[i] = kind
            continue
        size = _size_of(kind, are_hashes)
        if size < 0 or place + size > len(data):
            return False
        if _SHORT_BYTES <= kind <= _LONG_BYTES:
            length = int(np.int64(_big_endian(data, place, size, _ZERO)))
            place += size + max(length - 8, 0)
            size = min(length, 8)
            if place + size > len(data):
                return False
        is_negative = kind >= _NEGATIVE or (kind >= _SIGNED and data[place] >= 0x80)
        value = _big_endian(data, place, size, _ONES if is_negative else _ZERO)
        if kind >= _NEGATIVE:
            value = (value << _BYTE) | np.uint64(kind)
        if not are_hashes and value > _32_BITS:
            return False
        values[i] = value
        place += size
    return True


@kernel_part
def _size_of(kind: int, are_hashes: bool) -> int:
    """Bytes after the first one of a number, or of the length of a byte string; -1 for any other type."""
    if _UNSIGNED <= kind < _SIGNED:
        return 1 << (kind - _UNSIGNED)
    if not are_hashes:
        return -1
    if _SIGNED <= kind < _SIGNED + 4:
        return 1 << (kind - _SIGNED)
    if _SHORT_BYTES <= kind <= _LONG_BYTES:
        return 1 << (kind - _SHORT_BYTES)
    return 0 if kind >= _NEGATIVE else -1


@kernel_part
def _big_endian(data: NDArray[np.uint8], place: int, size: int, before: np.uint64) -> np.uint64:
    value = before
    for i in range(place, place + size):
        value = (value << _BYTE) | np.uint64(data[i])
    return value
