"""Device transfers under the engine's own scheduler: every access is ordered, and each wait that orders them is needed.

The world of ``world.py`` with traces in place of tensors; its forward pass, our sparse forward, loads and captures are
recorded as work of two streams. Blocks are freed, preempted and given to others as the real scheduler decides.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from tests.engines.vllm_inside.happens_before import ENGINE, Order, RecordedMove, RecordedStreams
from tests.engines.vllm_inside.tiny import BLOCK
from tests.engines.vllm_inside.traces import TraceCache
from tests.engines.vllm_inside.world import LOG, World, make_world

from semblend.integration.core.rank_group import ALONE
from semblend.integration.vllm import transfers
from semblend.integration.vllm.transfers import DeviceTransfers
from semblend.integration.vllm.worker_half import WorkerHalf
from semblend.kv.arena import Arena, arena_bytes
from semblend.kv.donor_store import KVShape
from semblend.kv.move import Pages
from semblend.kv.rope import LayerRotations, no_rotation

pytestmark = pytest.mark.engine

DIRECTORY = Path(tempfile.mkdtemp(prefix="semblend-tiny-"))
LAYERS = 2
PASSAGES = [np.random.default_rng(n).integers(3, 512, 80 + 20 * n).tolist() for n in range(3)]


@dataclass
class RecordedForward:
    """The engine's model on the engine's stream: layer by layer, each as soon as its loads have arrived."""

    cache: TraceCache
    order: Order
    half: WorkerHalf | None = None
    asks: bool = True
    fails: bool = False

    def forward(self, block_ids: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        slots = [block * BLOCK + offset for block in block_ids for offset in range(BLOCK)][: start + len(tokens)]
        for layer in range(LAYERS):
            if self.half is not None and self.asks:
                self.half.wait_for_layer(f"layer{layer}")
            self.order.access(
                ENGINE,
                "a forward pass",
                [("cache", layer, slot) for slot in slots[:start]],
                [("cache", layer, slot) for slot in slots[start:]],
            )
        TraceCache.forward(self.cache, block_ids, start, tokens)

    def compute(self, block_ids: torch.Tensor, ranges: Any, token_ids: Any) -> None:
        taken = 0
        for part in ranges:
            self.forward(block_ids.tolist(), part.start, token_ids[taken : taken + len(part)].tolist())
            taken += len(part)


def recorded_world(order: Order, seed: int, *, blocks: int, depth: int, without: str) -> World:
    """A world whose only rank moves rows as on a device."""
    world = make_world(DIRECTORY, blocks=blocks, depth=depth, host_tokens=1024)
    [rank] = world.ranks
    rank.cache.names = tuple(f"layer{layer}" for layer in range(LAYERS))
    # One vector per token: the traces in layer 0, nothing in the others.
    traces = torch.from_numpy(rank.cache.values).view(blocks, BLOCK, 1, 1)
    pages = Pages((traces, *(torch.zeros_like(traces) for _ in range(1, LAYERS))))
    shape = KVShape(1, 1, 1, torch.int64)
    budget = 1024 * shape.bytes_per_token
    arena = Arena(torch.zeros(arena_bytes(shape, budget, 1), dtype=torch.uint8), shape, budget, 1)
    arena.pages = Pages(tuple(arena.pages.keys[0].clone() for _ in range(LAYERS)))

    def move_between(source: Pages, target: Pages, forms: Any) -> RecordedMove:
        named = [("cache" if part is pages else "arena", part) for part in (source, target)]
        return RecordedMove(order, named[0], named[1], forms)

    with mock.patch.object(transfers, "move_between", move_between):
        device = DeviceTransfers(
            pages, arena, LayerRotations.same(no_rotation(), LAYERS), RecordedStreams(order, seed, without)
        )
    forward = RecordedForward(rank.cache, order, asks=without != "layers ask")
    half = WorkerHalf(rank.cache, device, forward, ALONE, LOG)  # type: ignore[arg-type]
    forward.half = rank.half = half
    rank.cache.forward = forward.forward  # type: ignore[method-assign]
    if without == "freed blocks are protected":
        half.protect_captured = lambda commands: None  # type: ignore[method-assign]
    return world


def drive(seed: int, *, depth: int, without: str = "") -> tuple[Order, World]:
    """Arrivals, steps, aborts and preemptions by chance; a small cache, so that freed blocks are soon used again."""
    order, random = Order(), Random(seed)
    world = recorded_world(order, seed, blocks=random.choice([26, 30, 60]), depth=depth, without=without)
    for number in range(30):
        pieces = [random.choice(PASSAGES) for _ in range(random.randrange(1, 4))]
        head = [random.randrange(3, 512) for _ in range(random.randrange(3, 60))]
        world.add(f"r{number}", [*head, *(token for piece in pieces for token in piece)], random.randrange(1, 12))
        for _ in range(random.randrange(1, 14)):
            world.step()
        if random.random() < 0.2:
            world.abort(f"r{random.randrange(number + 1)}")
    world.flush()
    world.drain(2000)
    world.pool.shutdown()
    return order, world


@pytest.mark.parametrize("depth", [1, 2])
def test_every_access_is_ordered(depth: int) -> None:
    accesses = loads = frees = cached = 0
    for seed in range(4):
        order, world = drive(seed, depth=depth)
        assert not order.races, order.races[:5]
        assert not any(report.load_faults or report.capture_faults for report in world.reports)
        accesses += order.accesses
        loads += sum(len(report.loaded) for report in world.reports)
        cached += sum(any(load.cached) for commands in world.commands for load in commands.loads)
        frees += sum(commands.frees_captured for commands in world.commands)
    print(f"{accesses} accesses of {loads} loads ({cached} from the cache), {frees} frees after captures: no race")
    assert loads >= 10
    assert cached >= 4
    assert frees >= 4


@pytest.mark.parametrize(
    "without",
    [
        "layers ask",
        "the engine waits for ours",
        "ours waits for the engine",
        "events fire",
        "freed blocks are protected",
    ],
)
def test_each_wait_is_needed(without: str) -> None:
    """A violation of each kind, planted in the same traffic, is found."""
    found = any(drive(seed, depth=1 + seed % 2, without=without)[0].races for seed in range(8))
    assert found, f"without '{without}' nothing races: the check is blind to it"
