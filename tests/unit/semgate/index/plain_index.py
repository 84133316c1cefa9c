"""The index as one would write it with dictionaries: the oracle of the compiled one."""

from __future__ import annotations

import numpy as np

from semgate.index.keys import request_keys


class PlainIndex:
    """Same calls as ``BlockIndex``, with lists in the place of arrays."""

    def __init__(self, bound: int, *, count_copies: bool = True) -> None:
        self.bound = bound
        self.count_copies = count_copies
        self.orphan_blocks = 0
        self.evicted_blocks = 0
        self.held: dict[int, dict[int, tuple[int, int]]] = {}  # slot -> engine hash -> (key, copies), oldest first

    def add_slot(self) -> int:
        slot = next(number for number in range(len(self.held) + 1) if number not in self.held)
        self.held[slot] = {}
        return slot

    def remove_slot(self, slot: int) -> None:
        del self.held[slot]

    def cleared(self, slot: int) -> None:
        self.held[slot] = {}

    def stored(
        self, slot: int, hashes: list[int], parent: int | None, tokens: list[int], block_tokens: int, root: int
    ) -> None:
        held = self.held[slot]
        if parent is not None and parent not in held:
            self.orphan_blocks += len(hashes)
            return
        origin = root if parent is None else held[parent][0]
        keys = request_keys(np.array(tokens, np.uint32), block_tokens, origin).tolist()
        for hash_, key in zip(hashes, keys, strict=True):
            if hash_ in held:
                old_key, copies = held.pop(hash_)
                held[hash_] = (old_key, copies + 1)
                continue
            if len(held) >= self.bound:
                del held[next(iter(held))]
                self.evicted_blocks += 1
            held[hash_] = (key, 1)

    def removed(self, slot: int, hashes: list[int]) -> None:
        held = self.held[slot]
        for hash_ in hashes:
            if hash_ not in held:
                continue
            key, copies = held[hash_]
            if self.count_copies and copies > 1:
                held[hash_] = (key, copies - 1)  # keeps its age
            else:
                del held[hash_]

    def longest(self, keys: list[int]) -> dict[int, int]:
        result = {}
        for slot, held in self.held.items():
            own = {key for key, _ in held.values()}
            count = 0
            while count < len(keys) and keys[count] in own:
                count += 1
            result[slot] = count
        return result

    def dump(self, slot: int) -> set[tuple[int, int]]:
        return {(hash_, key) for hash_, (key, _) in self.held[slot].items()}
