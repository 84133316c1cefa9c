"""Runs every compiled loop once on throwaway state before the port opens, so that no request waits for compilation.

A loop compiled while serving (at the first lost replica or expired block) would block all streams for seconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.donors.index import DonorIndex
from semgate.events.wire import BlockRemoved, BlockStored, decode_batch, encode_batch
from semgate.index.approximate import TICK_SECONDS, ApproximateIndex
from semgate.index.blocks import BlockIndex
from semgate.index.held import entries
from semgate.index.keys import request_keys, root_key

_TOKENS: Final = 16_384  # more blocks than the initial tables hold, so that they grow
_BLOCK_TOKENS: Final = 4


def warm_up() -> None:
    """Takes seconds from numba's cache, about ten times as long if it must compile."""
    tokens = np.arange(_TOKENS, dtype=np.uint32)
    root = root_key("", None, None)
    keys = request_keys(tokens, _BLOCK_TOKENS, root)
    _messages(tokens[:64])
    _announced(tokens, keys, root)
    _predicted(keys)
    DonorIndex.warm_up()


def _messages(tokens: NDArray[np.uint32]) -> None:
    blocks = len(tokens) // _BLOCK_TOKENS
    events = (BlockStored(list(range(blocks)), None, tokens.tolist(), _BLOCK_TOKENS), BlockRemoved([0]))
    tuple(decode_batch(encode_batch(0.0, events)))


def _announced(tokens: NDArray[np.uint32], keys: NDArray[np.uint64], root: int) -> None:
    index = BlockIndex(_TOKENS // _BLOCK_TOKENS)
    slot = index.add_slot()
    index.stored(slot, keys[:1], None, tokens[:_BLOCK_TOKENS], _BLOCK_TOKENS, root)
    index.stored(slot, keys, None, tokens, _BLOCK_TOKENS, root)
    index.stored(slot, keys[:1] + np.uint64(1), int(keys[0]), tokens[:_BLOCK_TOKENS], _BLOCK_TOKENS, root)
    twin = np.array([1, 2], np.uint64)  # engine hashes of one block
    for hash_ in (twin[:1], twin[1:]):
        index.stored(slot, hash_, None, tokens[1 : 1 + _BLOCK_TOKENS], _BLOCK_TOKENS, root)
    index.removed(slot, twin[:1])
    index.stored(slot, twin[:1], None, tokens[1 : 1 + _BLOCK_TOKENS], _BLOCK_TOKENS, root)
    index.stored(slot, ~keys, None, tokens, _BLOCK_TOKENS, root)  # evicts everything, the twins included
    index.longest(keys)
    hashes, held_keys, copies = entries(index.frozen(slot))
    index.restore(index.add_slot(), hashes, held_keys, copies + np.uint16(1))
    index.removed(slot, keys[:8])
    index.cleared(slot)
    index.remove_slot(slot)


def _predicted(keys: NDArray[np.uint64]) -> None:
    now_s = 0.0
    index = ApproximateIndex(1 << 16, TICK_SECONDS, clock=lambda: now_s)
    slot = index.add_slot()
    index.routed(slot, keys)
    now_s = 10.0
    index.longest(keys)
    index.cleared(slot)
    index.remove_slot(slot)
