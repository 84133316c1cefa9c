"""Bytes that were changed a little: what a decoder of a wire format must survive."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

# Heads of msgpack values whose content is missing, text that is not UTF-8, the largest numbers, empty containers.
_PIECES: Final = (
    *(
        b"\xff",
        b"\xa4ty\xffe",
        b"\xcf" + b"\xff" * 8,
        b"\xd3\x80" + b"\0" * 7,
        b"\xcb\x7f\xf8" + b"\0" * 6,
        b"\xcb\x7f\xf0",
    ),
    *(
        b"\x80",
        b"\x90",
        b"\xc0",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xde",
    ),
    *(
        b"\x91" * 2000,
        b"\x81\xa1a" * 700,
        b"\x82\xa4type\xabBlockStored",
        b"\xd8",
        b"\xc7\x01",
        b"\xd9\xc0",
        b"\x00",
        b"\x7f",
    ),
)


def mutants(seeds: Sequence[bytes], count: int, seed: int = 0) -> Iterator[bytes]:
    """``count`` of them, the same in every run."""
    dice = random.Random(seed)
    for _ in range(count):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randint(1, 3)):
            place = dice.randint(0, len(data))
            match dice.choice(
                (0, 0, 0, 0, 1, 2, 2, 3, 4, 5)
            ):  # most keep the length, so that more than the frame is read
                case 0:
                    data[place : place + 1] = bytes((dice.randint(0, 255),))
                case 1:
                    data[place:place] = dice.choice(_PIECES)
                case 2:
                    piece = dice.choice(_PIECES)
                    data[place : place + len(piece)] = piece
                case 3:
                    del data[place : place + dice.randint(1, 9)]
                case 4:
                    other = dice.choice(seeds)
                    start = dice.randint(0, len(other))
                    data[place:place] = other[start : start + dice.randint(1, 40)]
                case _:
                    del data[place:]
        yield bytes(data)
