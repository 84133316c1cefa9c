"""The compiled index against dictionaries, and what it promises about bounds, slots and memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.semgate.index.plain_index import PlainIndex

from sembase.errors import ConfigurationError, ContractError
from semgate.index.blocks import BlockIndex
from semgate.index.held import entries
from semgate.index.keys import request_keys, root_key

BLOCK = 2
ROOTS = (root_key("model", None, None), root_key("model", "a salt", None))
SLOTS = 3


@dataclass(frozen=True)
class Operation:
    """Hashes and tokens of tiny alphabets: duplicates, unknown parents and two hashes of one key are common."""

    name: str
    slot: int
    hashes: tuple[int, ...] = ()
    parent: int | None = None
    tokens: tuple[int, ...] = ()
    root: int = ROOTS[0]


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    name = draw(st.sampled_from(["stored"] * 6 + ["removed"] * 3 + ["cleared", "replaced"]))
    slot = draw(st.integers(0, SLOTS - 1))
    if name in ("cleared", "replaced"):
        return Operation(name, slot)
    hashes = tuple(draw(st.lists(st.integers(0, 20), max_size=6)))
    if name == "removed":
        return Operation(name, slot, hashes)
    tokens = draw(st.lists(st.integers(0, 1), min_size=BLOCK * len(hashes), max_size=BLOCK * len(hashes)))
    parent = draw(st.none() | st.integers(0, 20))
    return Operation(name, slot, hashes, parent, tuple(tokens), draw(st.sampled_from(ROOTS)))


def apply(index: BlockIndex, plain: PlainIndex, operation: Operation) -> None:
    hashes = np.array(operation.hashes, np.uint64)
    slot, tokens = operation.slot, list(operation.tokens)
    if operation.name == "stored":
        index.stored(slot, hashes, operation.parent, np.array(tokens, np.uint32), BLOCK, operation.root)
        plain.stored(slot, list(operation.hashes), operation.parent, tokens, BLOCK, operation.root)
    elif operation.name == "removed":
        index.removed(slot, hashes)
        plain.removed(slot, list(operation.hashes))
    elif operation.name == "cleared":
        index.cleared(slot)
        plain.cleared(slot)
    else:
        index.remove_slot(slot)
        plain.remove_slot(slot)
        assert index.add_slot() == plain.add_slot() == slot


def compare(index: BlockIndex, plain: PlainIndex, keys: NDArray[np.uint64]) -> None:
    longest = index.longest(keys)
    assert {slot: int(longest[slot]) for slot in plain.held} == plain.longest(keys.tolist())


@settings(max_examples=300)
@given(st.lists(operations(), min_size=5, max_size=40), st.booleans(), st.lists(st.integers(0, 1), max_size=20))
def test_any_history_gives_what_dictionaries_give(
    history: list[Operation], count_copies: bool, asked: list[int]
) -> None:
    index, plain = BlockIndex(16, count_copies=count_copies), PlainIndex(16, count_copies=count_copies)
    for _ in range(SLOTS):
        assert index.add_slot() == plain.add_slot()
    for operation in history:
        apply(index, plain, operation)
        for root in ROOTS:
            compare(index, plain, request_keys(np.array(asked, np.uint32), BLOCK, root))
    for slot in range(SLOTS):
        assert index.dump(slot) == plain.dump(slot)
        assert index.blocks(slot) == len(plain.held[slot])
        for _, key in plain.dump(slot):
            compare(index, plain, np.array([key], np.uint64))
    assert index.distinct_blocks() == len({key for slot in range(SLOTS) for _, key in plain.dump(slot)})
    assert index.counters.orphan_blocks == plain.orphan_blocks
    assert index.counters.evicted_blocks == plain.evicted_blocks


def test_a_large_history_through_growth_and_shrinking() -> None:
    """Thousands of chains over 70 replicas (two words of bits), extended, removed and cleared."""
    random = np.random.default_rng(7)
    index, plain = BlockIndex(2_000), PlainIndex(2_000)
    for _ in range(70):
        assert index.add_slot() == plain.add_slot()
    documents = random.integers(0, 50_000, (40, 64 * BLOCK), np.uint32)
    for step in range(3_000):
        slot = int(random.integers(70)) if step % 3 else int(random.integers(3))
        document = documents[random.integers(40)]
        count = int(random.integers(1, 65))
        # an engine's own hash: of the document and how far, different on every replica
        salt = int(document[0]) * 1_000 + slot
        hashes = [hash((salt, i)) & (2**64 - 1) for i in range(count)]
        if random.random() < 0.6:
            begin = int(random.integers(count))
            parent = hashes[begin - 1] if begin else None
            tokens = document[begin * BLOCK : count * BLOCK]
            index.stored(slot, np.array(hashes[begin:], np.uint64), parent, tokens, BLOCK, ROOTS[0])
            plain.stored(slot, hashes[begin:], parent, tokens.tolist(), BLOCK, ROOTS[0])
        elif random.random() < 0.98:
            index.removed(slot, np.array(hashes[::2], np.uint64))
            plain.removed(slot, hashes[::2])
        else:
            index.cleared(slot)
            plain.cleared(slot)
        if step % 20 == 0:
            compare(index, plain, request_keys(document, BLOCK, ROOTS[0]))
    assert plain.evicted_blocks == index.counters.evicted_blocks
    for slot in range(70):
        assert index.dump(slot) == plain.dump(slot)
    for slot in range(70):
        index.remove_slot(slot)
    assert index.distinct_blocks() == 0
    assert index.state_bytes() <= 1024 * 24


def chain(index: BlockIndex, slot: int, tokens: NDArray[np.uint32], first_hash: int) -> None:
    hashes = np.arange(first_hash, first_hash + len(tokens) // BLOCK, dtype=np.uint64)
    index.stored(slot, hashes, None, tokens, BLOCK, ROOTS[0])


def test_a_block_stays_while_the_engine_has_another_copy() -> None:
    """vLLM does not merge equal blocks of two running requests, and reports each of them coming and going."""
    index = BlockIndex()
    slot = index.add_slot()
    tokens = np.arange(8, dtype=np.uint32)
    keys = request_keys(tokens, BLOCK, ROOTS[0])
    chain(index, slot, tokens, 100)
    chain(index, slot, tokens, 100)
    index.removed(slot, np.array([102], np.uint64))
    assert index.longest(keys).tolist() == [4]
    index.removed(slot, np.array([102], np.uint64))
    assert index.longest(keys).tolist() == [2]


def test_a_child_is_found_again_when_its_parent_returns() -> None:
    index = BlockIndex()
    slot = index.add_slot()
    tokens = np.arange(8, dtype=np.uint32)
    keys = request_keys(tokens, BLOCK, ROOTS[0])
    chain(index, slot, tokens, 100)
    index.removed(slot, np.array([100], np.uint64))
    assert index.longest(keys).tolist() == [0]
    index.stored(slot, np.array([100], np.uint64), None, tokens[:BLOCK], BLOCK, ROOTS[0])
    assert index.longest(keys).tolist() == [4]


def test_replicas_beyond_64_have_bits_of_their_own() -> None:
    index = BlockIndex()
    slots = [index.add_slot() for _ in range(130)]
    tokens = np.arange(8, dtype=np.uint32)
    for slot in (0, 63, 64, 129):
        chain(index, slot, tokens, 5)
    longest = index.longest(request_keys(tokens, BLOCK, ROOTS[0]))
    assert {slot for slot in slots if longest[slot]} == {0, 63, 64, 129}
    index.remove_slot(64)
    assert index.longest(request_keys(tokens, BLOCK, ROOTS[0]))[[63, 64, 129]].tolist() == [4, 0, 4]


def test_the_bound_holds_and_the_oldest_go() -> None:
    index = BlockIndex(16)
    slot = index.add_slot()
    tokens = np.arange(40, dtype=np.uint32)
    chain(index, slot, tokens, 0)
    assert index.blocks(slot) == 16
    assert {hash_ for hash_, _ in index.dump(slot)} == set(range(4, 20))


def test_what_cannot_be_blocks_is_refused() -> None:
    index = BlockIndex()
    slot = index.add_slot()
    hashes = np.arange(2, dtype=np.uint64)
    with pytest.raises(ContractError, match="2 blocks of 16 tokens came with 31 tokens"):
        index.stored(slot, hashes, None, np.arange(31, dtype=np.uint32), 16, ROOTS[0])
    with pytest.raises(ContractError, match="2 blocks of 0 tokens"):
        index.stored(slot, hashes, None, np.arange(0, dtype=np.uint32), 0, ROOTS[0])
    with pytest.raises(ContractError, match="1 extra keys"):
        index.stored(slot, hashes, None, np.arange(32, dtype=np.uint32), 16, ROOTS[0], np.zeros(1, np.uint64))
    with pytest.raises(KeyError, match="slot 7"):
        index.blocks(7)
    with pytest.raises(ConfigurationError, match="max_blocks_per_replica"):
        BlockIndex(0)


@settings(max_examples=150)
@given(st.lists(operations(), max_size=40), st.lists(operations(), max_size=15))
def test_a_restored_index_continues_as_the_frozen_one(before: list[Operation], after: list[Operation]) -> None:
    """Blocks, copies, two hashes of one key and ages are all there: what comes later gives what dictionaries give."""
    index, plain = BlockIndex(16), PlainIndex(16)
    for _ in range(SLOTS):
        assert index.add_slot() == plain.add_slot()
    for operation in before:
        apply(index, plain, operation)
    restored = BlockIndex(16)
    for slot in range(SLOTS):
        hashes, keys, copies = entries(index.frozen(slot))
        assert restored.add_slot() == slot
        for first in range(0, len(hashes), 3):
            part = slice(first, first + 3)
            restored.restore(slot, hashes[part], keys[part], copies[part])
    for operation in after:
        apply(restored, plain, operation)
    for slot in range(SLOTS):
        assert restored.dump(slot) == plain.dump(slot)
        for _, key in plain.dump(slot):
            compare(restored, plain, np.array([key], np.uint64))
    assert restored.distinct_blocks() == len({key for slot in range(SLOTS) for _, key in plain.dump(slot)})
