"""Extract the arrays of block ids from a line of JSON before it is parsed: millions of numbers at memory speed.

``{"hash_ids":[7,8,9], ...}`` becomes ``{"hash_ids":[0], ...}`` and array 0 = 7, 8, 9.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel
from sembase.errors import ContractError

_KEY: Final = np.frombuffer(b'"hash_ids":', np.uint8)
_OPEN, _CLOSE, _COMMA, _SPACE, _ZERO, _NINE = 91, 93, 44, 32, 48, 57


def lift_ids(line: bytes, where: str) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    """The line without its ids, the ids of all arrays concatenated, and the start and end of each array."""
    arrays = line.count(b'"hash_ids":')
    text = np.frombuffer(line, np.uint8)
    ids = np.empty(line.count(b",") + arrays + 1, np.int64)
    bounds = np.zeros((arrays, 2), np.int64)
    rest = np.empty(len(line) + 20 * arrays, np.uint8)
    length, id_count, fault = _lift(text, _KEY, ids, bounds, rest)
    if fault >= 0:
        raise ContractError(f"{where}: hash_ids must be whole numbers of at most 18 digits (byte {fault})")
    return rest[:length].tobytes(), ids[:id_count].copy(), bounds


@kernel
def _lift(  # noqa: PLR0912
    text: NDArray[np.uint8],
    key: NDArray[np.uint8],
    ids: NDArray[np.int64],
    bounds: NDArray[np.int64],
    rest: NDArray[np.uint8],
) -> tuple[int, int, int]:
    written, id_count, array, at = 0, 0, 0, 0
    while at < text.size:
        is_key = text[at] == key[0] and at + key.size < text.size
        if is_key:
            for step in range(1, key.size):
                if text[at + step] != key[step]:
                    is_key = False
                    break
        if not is_key:
            rest[written] = text[at]
            written += 1
            at += 1
            continue
        for step in range(key.size):
            rest[written] = key[step]
            written += 1
        at += key.size
        while at < text.size and text[at] == _SPACE:
            at += 1
        if at >= text.size or text[at] != _OPEN:
            return written, id_count, at
        at += 1
        bounds[array, 0] = id_count
        number, digits = 0, 0
        while at < text.size and text[at] != _CLOSE:
            sign = text[at]
            if _ZERO <= sign <= _NINE:
                number = number * 10 + (sign - _ZERO)
                digits += 1
                if digits > 18:
                    return written, id_count, at
            elif sign == _COMMA and digits:
                ids[id_count] = number
                id_count += 1
                number, digits = 0, 0
            elif sign != _SPACE or (digits and at + 1 < text.size and _ZERO <= text[at + 1] <= _NINE):
                return written, id_count, at
            at += 1
        if digits == 0 and id_count > bounds[array, 0]:  # a trailing comma
            return written, id_count, at
        if digits:
            ids[id_count] = number
            id_count += 1
        bounds[array, 1] = id_count
        rest[written] = _OPEN
        written += 1
        scale = 1
        while array // scale >= 10:
            scale *= 10
        while scale:
            rest[written] = _ZERO + (array // scale) % 10
            written += 1
            scale //= 10
        array += 1
    return written, id_count, -1
