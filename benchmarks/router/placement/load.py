"""Loads for the placement benchmark, flattened: request i carries blocks[starts[i]:starts[i + 1]], chained by content.

Synthetic: tenants with a system prompt each, sessions that grow turn by turn. Mooncake: a window of the real trace.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """``next_use`` runs beside ``blocks``: the next request that carries the block, or the number of requests."""

    name: str
    block_tokens: int
    arrival_ms: Floats
    prompt_tokens: Longs
    output_tokens: Longs
    starts: Longs
    blocks: Ints
    next_use: Ints

    @property
    def requests(self) -> int:
        return self.arrival_ms.size

    @property
    def bytes(self) -> int:
        columns = (self.arrival_ms, self.prompt_tokens, self.output_tokens, self.starts, self.blocks, self.next_use)
        return sum(column.nbytes for column in columns)


def synthetic(requests: int, *, local: bool, ms_per_token: float, replicas: int, offered: float, seed: int = 0) -> Load:
    """``offered``: cold prefill work over what the fleet computes. ``local`` False: no two requests share a block."""
    rng = np.random.default_rng(seed)
    block_tokens = 256
    turns = 1 + rng.geometric(1 / 5, size=requests // 4 + 64) if local else np.ones(requests, dtype=np.int64)
    sessions = int(np.searchsorted(np.cumsum(turns), requests)) + 1
    turns = turns[:sessions]
    tenants = 400
    popularity = 1.0 / np.arange(1, tenants + 1) ** 0.9
    tenant = rng.choice(tenants, size=sessions, p=popularity / popularity.sum())
    system_blocks = rng.integers(2, 13, size=tenants)
    session = np.repeat(np.arange(sessions), turns)[:requests]
    turn = np.concatenate([np.arange(count) for count in turns])[:requests]
    # Think times of about half a minute: thousands of sessions are open at once, in any order.
    opened = rng.uniform(0.0, 1.0, size=sessions)
    added = rng.integers(1, 5, size=requests)
    starts, blocks = _tile(session, turn, tenant, system_blocks, added, local)
    prompt_tokens = np.diff(starts) * block_tokens
    span_ms = float(prompt_tokens.sum()) * ms_per_token / (replicas * offered)
    think_ms = min(30_000.0, span_ms / 10.0)
    gaps = rng.exponential(think_ms, size=requests)
    gaps[turn == 0] = 0.0
    sums = np.cumsum(gaps)
    since_open = sums - sums[np.searchsorted(session, session)]
    arrival_ms = opened[session] * span_ms + (since_open if local else 0.0)
    # Late turns trail behind the last opening: without this the fleet would be offered less than stated, or more.
    arrival_ms *= span_ms / float(np.quantile(arrival_ms, 0.98))
    order = np.argsort(arrival_ms, kind="stable")
    outputs = rng.integers(32, 512, size=requests)
    name = "synthetic sessions" if local else "synthetic, no locality"
    return _ordered(name, block_tokens, arrival_ms, prompt_tokens, outputs, starts, blocks, order)


def mooncake(path: Path, requests: int, *, ms_per_token: float, replicas: int, offered: float) -> Load:
    """The first requests of the trace at its own spacing, the clock scaled to the offered work."""
    with gzip.open(path, "rt") as stream:
        rows = [json.loads(line) for _, line in zip(range(requests), stream, strict=False)]
    lengths = [len(row["hash_ids"]) for row in rows]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.concatenate([np.asarray(row["hash_ids"], dtype=np.int64) for row in rows])
    blocks = np.unique(flat, return_inverse=True)[1].astype(np.int32)
    tokens = np.array([row["input_length"] for row in rows], dtype=np.int64)
    arrival_ms = np.array([row["timestamp"] for row in rows], dtype=np.float64)
    span_ms = float(tokens.sum()) * ms_per_token / (replicas * offered)
    arrival_ms = (arrival_ms - arrival_ms[0]) * span_ms / max(float(arrival_ms[-1] - arrival_ms[0]), 1.0)
    outputs = np.array([row["output_length"] for row in rows], dtype=np.int64)
    order = np.argsort(arrival_ms, kind="stable")
    return _ordered("Mooncake conversation", 512, arrival_ms, tokens, outputs, starts, blocks, order)


def _ordered(
    name: str,
    block_tokens: int,
    arrival_ms: Floats,
    prompt_tokens: Longs,
    outputs: Longs,
    starts: Longs,
    blocks: Ints,
    order: Longs,
) -> Load:
    new_starts = np.concatenate([[0], np.cumsum(np.diff(starts)[order])]).astype(np.int64)
    moved = np.empty_like(blocks)
    _move(starts, blocks, order, new_starts, moved)
    next_use = np.empty_like(moved)
    _find_next_use(new_starts, moved, np.full(int(moved.max()) + 1, order.size, dtype=np.int32), next_use)
    return Load(
        name, block_tokens, arrival_ms[order], prompt_tokens[order], outputs[order], new_starts, moved, next_use
    )


@kernel
def _tile(
    session: Longs, turn: Longs, tenant: Longs, system_blocks: Longs, added: Longs, local: bool
) -> tuple[Longs, Ints]:
    """Blocks of each request: the tenant's, then the session's history. New ids if nothing is shared."""
    first_id = np.zeros(system_blocks.size + 1, dtype=np.int64)
    first_id[1:] = np.cumsum(system_blocks)
    fresh = first_id[-1]
    starts = np.zeros(session.size + 1, dtype=np.int64)
    history = 0
    for request in range(session.size):
        history = added[request] if turn[request] == 0 else history + added[request]
        starts[request + 1] = starts[request] + system_blocks[tenant[session[request]]] + history
    blocks = np.empty(starts[-1], dtype=np.int32)
    opened = 0
    for request in range(session.size):
        place = starts[request]
        who = tenant[session[request]]
        for block in range(system_blocks[who]):
            if local:
                blocks[place] = first_id[who] + block
            else:
                blocks[place] = fresh
                fresh += 1
            place += 1
        if turn[request] == 0:
            opened = fresh
        fresh += added[request]
        for block in range(starts[request + 1] - place):
            blocks[place + block] = opened + block
    return starts, blocks


@kernel
def _move(starts: Longs, blocks: Ints, order: Longs, new_starts: Longs, moved: Ints) -> None:
    for place in range(order.size):
        origin = starts[order[place]]
        for block in range(new_starts[place + 1] - new_starts[place]):
            moved[new_starts[place] + block] = blocks[origin + block]


@kernel
def _find_next_use(starts: Longs, blocks: Ints, upcoming: Ints, next_use: Ints) -> None:
    for request in range(starts.size - 2, -1, -1):
        for place in range(starts[request], starts[request + 1]):
            next_use[place] = upcoming[blocks[place]]
        for place in range(starts[request], starts[request + 1]):
            upcoming[blocks[place]] = request
