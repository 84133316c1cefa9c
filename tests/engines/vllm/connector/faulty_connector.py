"""The connector with faults on demand, loaded by the server under test: a file names the one to inject.

``lookup`` raises before anything happened, ``lookup_late`` after the claim was made; likewise ``allocate`` and
``allocate_late``, ``finish`` and ``finish_late``. A message may follow (``lookup: broken on purpose``).
``store_missing`` and ``store_truncated`` harm the donor itself. ``rope:N`` and ``rows_of_others`` raise nothing: keys
are moved N positions further than the plan says, or the rows of a donor are those of its neighbours. Only the check of
loads and the guard notice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1

FAULT_FILE = Path(os.environ["FAULT_FILE"])
LAYER = 5  # a write that fails in the middle leaves half of the layers behind


class InjectedFault(RuntimeError):  # noqa: N818 - it is a fault, as the contract calls it
    """What the tests look for in events and logs."""


def injected() -> str:
    """The fault to inject here; ``fault@rank`` concerns one rank only."""
    fault, _, rank = (FAULT_FILE.read_text(encoding="utf-8") if FAULT_FILE.exists() else "").partition("@")
    is_here = not rank or (torch.distributed.is_initialized() and torch.distributed.get_rank() == int(rank))
    return fault if is_here else ""


class FaultyConnector(SemBlendConnectorV1):
    """Breaks the halves from inside, below everything that contains faults."""

    def _start_scheduler(self, *arguments: Any) -> Any:
        half = super()._start_scheduler(*arguments)
        for method, name in (
            ("arrived", "arrive"),
            ("matched_tokens", "lookup"),
            ("allocated", "allocate"),
            ("commands", "orders"),
            ("on_report", "news"),
            ("finished", "finish"),
        ):
            setattr(half, method, breaking(name, getattr(half, method)))
        return half

    def get_handshake_metadata(self) -> Any:
        readiness = super().get_handshake_metadata()
        worker: Any = self._worker
        if worker is not None:
            transfers, cache = worker._transfers, worker._cache
            store, rotations = transfers._store, transfers._rotations
            store.read = harming_store(store, store.read)
            worker._transfers.load = loading_from_store(worker._transfers.load)
            store.begin = breaking("capture_begin", store.begin)
            rotations.move = moving_too_far(rotations.move)
            cache.read = breaking("capture", cache.read)
            cache.write = breaking_at_layer("write", cache.write)
            if worker._sparse_forward is not None:
                worker._sparse_forward.compute = breaking("sparse_forward", worker._sparse_forward.compute)
        return readiness


def loading_from_store(load: Callable[..., None]) -> Callable[..., None]:
    """Faults concern the store: while one is injected, no donor is loaded out of the engine's cache instead."""

    def call(runs: Any, block_ids: Any, cached: Any = ()) -> None:
        load(runs, block_ids, () if injected() else cached)

    return call


def breaking(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        fault, _, message = injected().partition(": ")
        if fault == name:
            raise InjectedFault(message or name)
        result = method(*arguments, **named)
        if fault == f"{name}_late":
            raise InjectedFault(f"{name}_late")
        return result

    return call


def breaking_at_layer(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(layer: int, *arguments: Any) -> Any:
        if layer == LAYER and injected() == name:
            raise InjectedFault(name)
        return method(layer, *arguments)

    return call


def harming_store(store: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    def read(donor_id: str, start: int, length: int) -> Any:
        if injected() == "store_missing":
            store.drop(donor_id)
        elif injected() == "store_truncated":
            entry = store._entries[donor_id]
            entry.kv = entry.kv[:, :, : entry.declared_tokens // 2]
        rows = method(donor_id, start, length)
        return rows.roll(5, dims=2) if injected() == "rows_of_others" else rows

    return read


def moving_too_far(method: Callable[..., Any]) -> Callable[..., Any]:
    def moved(keys: Any, shift: int) -> Any:
        name, _, further = injected().partition(":")
        return method(keys, shift + int(further) if name == "rope" else shift)

    return moved
