"""How donor KV gets into the engine's cache and out of it: directly on a host, by a stream of our own on a device.

On a device a load is one table of slots and angles in pinned memory, one copy of it, and a fixed number of launches
for all runs and layers; a step's captures are the same in the other direction. The host waits for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import ContextRisk, Run
from semblend.integration.vllm.commands import CaptureCommand
from semblend.kv.arena import Arena
from semblend.kv.donor_store import keys_and_values
from semblend.kv.move import MoveTable, Pages, Rows, move_between, rotation_forms
from semblend.kv.rope import LayerRotations, rotate_keys

if TYPE_CHECKING:
    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.kv.donor_store import DonorStore
    from semblend.kv.streams import Event, Streams

# Launches per load: layers are moved in so many groups, and the forward pass starts when the first has arrived.
LAYER_GROUPS: Final = 8
_TESTED: Final = "self-test"
_SHIFT: Final = 4096  # a multiple of every block size
_MAX_COPY_SECONDS: Final = 10.0


CachedBlocks = Sequence[Sequence[int]]  # for each run


def _parted(runs: Sequence[Run], cached: CachedBlocks, block_tokens: int) -> Iterator[tuple[Run, Sequence[int], int]]:
    """Each run with its donor's blocks in the engine's cache, and how many of its tokens they reach."""
    for run, blocks in zip(runs, cached or ((),) * len(runs), strict=True):
        reached = len(blocks) * block_tokens - run.donor_start % block_tokens
        yield run, blocks, min(max(reached, 0), run.length)


@dataclass(frozen=True, slots=True)
class Copied:
    """A capture that is done. ``is_stored``: its donor is complete now."""

    command: CaptureCommand
    is_stored: bool


class Transfers(Protocol):
    """One rank's donors, and the ways between them and the engine's cache. Calls raise ``StoreError`` for no donor."""

    def load(self, runs: Sequence[Run], block_ids: Sequence[int], cached: CachedBlocks = ()) -> None:
        """Write runs, rotated to their positions, into the blocks of a request. ``cached``: see ``LoadCommand``."""

    def wait_for_layer(self, layer: int) -> None:
        """What the engine is given from here on sees this layer of all loads."""

    def capture(self, command: CaptureCommand) -> None:
        """Copy a slice of a prefill into a donor, at the latest when ``end_step`` is called."""

    def end_step(self) -> None:
        """The step's forward pass and captures are complete on the host's side."""

    def protect_captured(self) -> None:
        """What the engine is given from here on may overwrite blocks of earlier captures."""

    def take_copied(self) -> list[Copied]:
        """Captures that are done since the last call. Does not wait."""

    def release(self, request_id: str) -> None:
        """A finished request whose blocks no further capture will read."""

    def take_released(self) -> set[str]:
        """Requests of ``release`` whose blocks no capture reads any more. Does not wait."""

    def drop(self, donor_id: str) -> None: ...


class HostTransfers:
    """By the engine's own write operation; every call is done when it returns. Made for a host.

    On a device it serves where memory cannot be pinned or the cache does not lie in strides, at a copy and a launch
    per run and layer.
    """

    def __init__(self, cache: AttentionCache, store: DonorStore, rotations: LayerRotations) -> None:
        self._cache = cache
        self._store = store
        self._rotations = rotations
        self._copied: list[Copied] = []
        self._released: set[str] = set()

    @property
    def store(self) -> DonorStore:
        return self._store

    def load(self, runs: Sequence[Run], block_ids: Sequence[int], cached: CachedBlocks = ()) -> None:
        blocks = torch.tensor(block_ids, dtype=torch.int64).to(self._cache.device)
        for run, sources, reached in _parted(runs, cached, self._cache.block_tokens):
            middle = run.target_start + reached
            if reached:
                self._write(blocks, run.target_start, middle, run.shift, *self._cached(run, sources, reached))
            if reached < run.length:
                kv = self._store.read(run.donor_id, run.donor_start + reached, run.length - reached)
                sides = keys_and_values(kv.to(self._cache.device))
                self._write(blocks, middle, run.target_end, run.shift, *sides)

    def _cached(self, run: Run, sources: Sequence[int], tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The run's first ``tokens`` as the engine's own blocks hold them."""
        first = run.donor_start % self._cache.block_tokens
        source_blocks = torch.tensor(sources, dtype=torch.int64).to(self._cache.device)
        sides = [self._cache.read(layer, source_blocks) for layer in range(len(self._cache.names))]
        keys, values = (
            torch.stack([side[first : first + tokens] for side in part]) for part in zip(*sides, strict=True)
        )
        return keys, values

    def _write(
        self, blocks: torch.Tensor, start: int, end: int, shift: int, plain_keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        slots = self._cache.slots(blocks, start, end)
        for layer, keys in enumerate(self._rotations.move(plain_keys, shift)):
            self._cache.write(layer, keys, values[layer], slots)

    def wait_for_layer(self, layer: int) -> None:
        """Loads are complete already."""

    def capture(self, command: CaptureCommand) -> None:
        if command.start == 0:
            self._store.begin(command.donor_id, command.donor_tokens)
        blocks = torch.tensor(command.block_ids, dtype=torch.int64).to(self._cache.device)
        for layer in range(len(self._cache.names)):
            keys, values = self._cache.read(layer, blocks)
            self._store.write(command.donor_id, layer, command.start, keys[: command.tokens], values[: command.tokens])
        if command.is_last:
            self._store.commit(command.donor_id)
        self._copied.append(Copied(command, command.is_last))

    def end_step(self) -> None:
        """Captures are complete already."""

    def protect_captured(self) -> None:
        """Captures are complete already."""

    def take_copied(self) -> list[Copied]:
        taken, self._copied = self._copied, []
        return taken

    def release(self, request_id: str) -> None:
        self._released.add(request_id)

    def take_released(self) -> set[str]:
        taken, self._released = self._released, set()
        return taken

    def drop(self, donor_id: str) -> None:
        self._store.drop(donor_id)


@dataclass(slots=True)
class _Running:
    """Captures of one step on their way, and requests that wait for them or for earlier ones."""

    done: Event
    captures: list[CaptureCommand]
    releases: list[str]


class DeviceTransfers:
    """On a device: one stream of ours does all transfers in order, loads and captures alike.

    So pages of the arena need no events among transfers. Towards the engine there are three: our stream waits for the
    engine before it touches its blocks, each layer of a forward pass waits for its group of layers, and blocks are
    released, or protected, until the capture that reads them is done.
    """

    def __init__(self, pages: Pages, arena: Arena, rotations: LayerRotations, streams: Streams) -> None:
        self._device = pages.device
        self._block_tokens = pages.block_tokens
        self._arena = arena
        self._streams = streams
        self._forms = rotation_forms(rotations)
        self._layers = range(len(rotations))
        self._groups = _groups(len(rotations))
        self._into_cache = move_between(arena.pages, pages, self._forms)
        self._out_of_cache = move_between(pages, arena.pages, self._forms)
        self._within_cache = move_between(pages, pages, self._forms)
        self._arrivals: dict[int, Event] = {}  # by group of layers, of the latest load
        self._captures: list[CaptureCommand] = []  # of this step, not submitted yet
        self._releases: list[str] = []
        self._running: list[_Running] = []
        self._released: set[str] = set()
        self._warm_up()

    def load(self, runs: Sequence[Run], block_ids: Sequence[int], cached: CachedBlocks = ()) -> None:
        stored, within = [], []
        for run, sources, reached in _parted(runs, cached, self._block_tokens):
            targets = self._slots(block_ids, run.target_start, run.length)
            if reached:
                first = self._slots(sources, run.donor_start % self._block_tokens, reached)
                within.append(Rows(first, targets[:reached], run.shift))
            if reached < run.length:
                rest = self._arena.slots(run.donor_id, run.donor_start + reached, run.length - reached)
                stored.append(Rows(rest, targets[reached:], run.shift))
        kinds = [(move, rows) for move, rows in ((self._within_cache, within), (self._into_cache, stored)) if rows]
        if not kinds:
            return
        tables = [(move, MoveTable.pack(rows, self._forms, self._streams.pinned)) for move, rows in kinds]
        self._streams.wait_for_engine()  # the step in flight may still read the blocks as another request's
        with self._streams.on_ours():
            try:
                moves = [(move, table.to(self._device)) for move, table in tables]
                for group, layers in enumerate(self._groups):
                    for move, table in moves:
                        move(table, layers)
                    self._arrivals[group] = self._streams.record()
            except Exception:
                # What was launched still writes: whatever the engine computes into the blocks instead comes after it.
                self._arrivals = dict.fromkeys(range(len(self._groups)), self._streams.record())
                raise

    def wait_for_layer(self, layer: int) -> None:
        if (arrival := self._arrivals.get(layer * len(self._groups) // len(self._layers))) is not None:
            self._streams.engine_waits(arrival)

    def capture(self, command: CaptureCommand) -> None:
        if command.start == 0:
            self._arena.begin(command.donor_id, command.donor_tokens)
        self._arena.slots(command.donor_id, command.start, command.tokens, to_write=True)
        self._arena.wrote(command.donor_id, command.start, command.tokens)
        self._captures.append(command)

    def end_step(self) -> None:
        """Submit all captures of the step in one launch. The engine's next work sees all loads of the step."""
        if self._arrivals:
            self._streams.engine_waits(self._arrivals[len(self._groups) - 1])  # a step without a forward pass
            self._arrivals.clear()
        commands, self._captures = self._captures, []
        releases, self._releases = self._releases, []
        if not commands:
            if self._running:
                self._running[-1].releases.extend(releases)  # earlier slices of theirs may still be copied
            else:
                self._released.update(releases)
            return
        try:
            self._submit(commands)
        except Exception:
            for command in commands:
                self._arena.drop(command.donor_id)  # never committed
            raise
        finally:
            self._running.append(_Running(self._streams.record(), commands, releases))

    def _submit(self, commands: list[CaptureCommand]) -> None:
        rows = [
            Rows(
                self._slots(command.block_ids, 0, command.tokens),
                self._arena.slots(command.donor_id, command.start, command.tokens, to_write=True),
                0,
            )
            for command in commands
        ]
        table = MoveTable.pack(rows, self._forms, self._streams.pinned)
        self._streams.wait_for_engine()
        with self._streams.on_ours():
            self._out_of_cache(table.to(self._device), self._layers)

    def protect_captured(self) -> None:
        if self._running:
            self._streams.engine_waits(self._running[-1].done)

    def take_copied(self) -> list[Copied]:
        copied = []
        while self._running and self._running[0].done.query():
            done = self._running.pop(0)
            self._released.update(done.releases)
            for command in done.captures:
                copied.append(Copied(command, command.is_last and self._arena.commit(command.donor_id)))
        return copied

    def release(self, request_id: str) -> None:
        self._releases.append(request_id)

    def take_released(self) -> set[str]:
        taken, self._released = self._released, set()
        return taken

    def drop(self, donor_id: str) -> None:
        self._arena.drop(donor_id)

    def _slots(self, block_ids: Sequence[int], start: int, length: int) -> NDArray[np.int64]:
        """Where positions of a request with these blocks lie."""
        positions = np.arange(start, start + length)
        slots: NDArray[np.int64] = np.array(block_ids, np.int64)[positions // self._block_tokens] * self._block_tokens
        return slots + positions % self._block_tokens

    def _warm_up(self) -> None:
        """Compile before anything is served."""
        none = np.empty(0, np.int64)
        table = MoveTable.pack([Rows(none, none, 0)], self._forms, self._streams.pinned)
        with self._streams.on_ours():
            moved = table.to(self._device)
            self._into_cache(moved, self._layers)
            self._out_of_cache(moved, self._layers)
            self._within_cache(moved, self._layers)


def _groups(layers: int) -> tuple[range, ...]:
    count = min(LAYER_GROUPS, layers)
    return tuple(range(-(-layers * group // count), -(-layers * (group + 1) // count)) for group in range(count))


class TransferError(Exception):
    """Rows came back from a round trip with other numbers, or not at all."""


def check_transfers(cache: AttentionCache, transfers: Transfers, rotations: LayerRotations) -> None:
    """At start-up: a block is captured, loaded at another position and compared with what torch makes of it.

    Uses the last two blocks of a cache that is not in use yet.
    """
    source, target = cache.blocks - 2, cache.blocks - 1
    layers, tokens, layout = len(rotations), cache.block_tokens, cache.layout
    shape = (layers, len(layout.offsets), tokens, layout.heads, layout.head_dim)
    written = torch.randn(shape, generator=torch.Generator().manual_seed(0), device="cpu").to(cache.dtype)
    plain_keys, plain_values = keys_and_values(written)
    slots = torch.arange(source * tokens, (source + 1) * tokens).to(cache.device)
    for layer in range(layers):
        cache.write(layer, plain_keys[layer].to(cache.device), plain_values[layer].to(cache.device), slots)
    transfers.capture(CaptureCommand(_TESTED, _TESTED, tokens, 0, tokens, (source,)))
    transfers.end_step()
    deadline = time.monotonic() + _MAX_COPY_SECONDS
    while not (copied := transfers.take_copied()):
        if time.monotonic() > deadline:
            raise TransferError(f"a block was not captured within {_MAX_COPY_SECONDS} s")
    if not copied[0].is_stored:
        raise TransferError("a captured block was not stored")
    run = Run(_TESTED, 0, _SHIFT, tokens, ContextRisk(0, 0, 0.0))
    # Positions from _SHIFT on lie in the target block: those before it are in blocks that nothing writes.
    first = _SHIFT // tokens
    if _SHIFT % tokens:
        raise TransferError(f"blocks of {tokens} tokens do not divide {_SHIFT}")
    for cached in ((), [(source,)]):
        cache.zero([target])
        transfers.load([run], [*[source] * first, target], cached)
        transfers.wait_for_layer(layers - 1)
        for layer in range(layers):
            keys, values = (side.cpu() for side in cache.read(layer, torch.tensor([target]).to(cache.device)))
            expected = rotate_keys(plain_keys[layer].float(), _SHIFT, rotations[layer])
            error = float((keys.float() - expected).abs().max() / expected.abs().max())
            if not torch.equal(values, plain_values[layer]) or not error <= torch.finfo(cache.dtype).eps:
                raise TransferError(f"layer {layer} came back with other numbers: K by {error:.3g}")
        transfers.end_step()
    transfers.drop(_TESTED)
    cache.zero([source, target])
