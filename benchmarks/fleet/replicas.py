"""Two vLLM servers that share donors: one store, one directory in Valkey, one secret. Every part can be ended alone."""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import valkey
from scripts.engines.mooncake import MooncakeStore, start_mooncake
from scripts.engines.server import EngineServer
from scripts.engines.valkey import start_valkey
from scripts.models.known import KnownModel

from benchmarks.console import progress
from benchmarks.vllm.client import Ask, Reply
from benchmarks.vllm.happenings import RequestResult
from benchmarks.vllm.servers import Subject, with_connector
from benchmarks.vllm.workload import Item
from semblend.fingerprint.anchors import select_anchors, thin_periodic
from semblend.fleet.carrier.base import CarrierError, KvCarrier, open_carrier

CARRIERS: Final = ("file", "mooncake")
STORE_BYTES: Final = 2 << 30  # of a Mooncake node
HOST_BYTES: Final = 512_000_000  # of donors in each server: they come back from the store
KV_CACHE_GIB: Final = 1
PATIENCE_S: Final = 300.0
PUBLISHED_S: Final = 60.0
PUBLICATIONS: Final = 5
POLL_S: Final = 0.1
_SHARES: Final = "SemBlend shares donors with other replicas"
_QUEUED: Final = re.compile(r"^vllm:request_queue_time_seconds_(sum|count)\{[^}]*\} (\S+)", re.MULTILINE)
_READ_BYTES: Final = re.compile(r"^vllm:semblend_fleet_read_bytes_total\{[^}]*\} (\S+)", re.MULTILINE)
_ASKED: Final = re.compile(
    r'^vllm:semblend_fleet_(searches|fetches)_total\{[^}]*(?:result|outcome)="(\w+)"[^}]*\} (\S+)', re.MULTILINE
)


class FleetError(Exception):
    """A part of the fleet did not do what the run needs."""


class Replica:
    """One server. ``kill`` ends it as a crash would; ``start`` gives it a new life without donors."""

    def __init__(self, name: str, options: dict[str, Any], folder: Path, model: KnownModel) -> None:
        self.name = name
        self._model = model
        self._options = options
        self._events = folder / f"events-{name}.jsonl"
        self._life = ExitStack()
        self.subject = self._start()

    def start(self) -> None:
        self.subject = self._start()

    def kill(self) -> None:
        os.killpg(self.subject.server.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        self._life.close()

    def ask(self, ask: Ask, *, top_logprobs: int = 0) -> tuple[Reply, RequestResult]:
        """One streamed request after the engine's own cache was emptied."""
        self.subject.client.reset_exact_cache()
        reply = self.subject.client.timed(ask, top_logprobs=top_logprobs)
        assert self.subject.happenings is not None
        return reply, self.subject.happenings.result(reply.request_id)

    def forget_donors(self) -> None:
        """Its own memory, not the fleet's store: the next request needs the fleet."""
        self.subject.client.reset_exact_cache(with_donors=True)

    def ask_queued(self, ask: Ask) -> tuple[Reply, RequestResult, float]:
        """With the milliseconds that the request was in the engine's queue."""
        before = self._queued()
        reply, result = self.ask(ask)
        _wait_until(lambda: self._queued()["count"] > before["count"], f"{self.name} never counted the request")
        return reply, result, (self._queued()["sum"] - before["sum"]) * 1e3

    def _queued(self) -> dict[str, float]:
        """Requests that were scheduled, and the seconds they waited for it."""
        return {"sum": 0.0, "count": 0.0} | {
            kind: float(value) for kind, value in _QUEUED.findall(self.subject.client.metrics())
        }

    def read_bytes(self) -> int:
        """Bytes it has read from the fleet's store, by its own metric."""
        found = _READ_BYTES.search(self.subject.client.metrics())
        return 0 if found is None else int(float(found[1]))

    def asked_fleet(self) -> Counter[str]:
        """Results of its searches and outcomes of its fetches so far, such as ``searches found``, by its metrics."""
        found = _ASKED.findall(self.subject.client.metrics())
        return Counter({f"{kind} {result}": int(float(count)) for kind, result, count in found})

    def _start(self) -> Subject:
        subject = self._life.enter_context(
            with_connector(self._options, self._events, model=self._model, is_warmed=False, kv_cache_gib=KV_CACHE_GIB)
        )
        _wait_until(
            lambda: _SHARES in subject.server.log_path.read_text(errors="replace"), f"{self.name} shares no donors"
        )
        return subject


class Fleet:
    """Replicas ``a`` and ``b``, each started when it is first used; ``a`` captures, ``b`` asks."""

    def __init__(
        self, folder: Path, wait_s: float, carrier: str, model: KnownModel, *, has_snapshots: bool = False
    ) -> None:
        """``has_snapshots``: Mooncake's master keeps them, so that it finds its objects again after a restart."""
        self._folder = folder
        self.model = model
        self.has_snapshots = has_snapshots
        self._store: MooncakeStore | None = None
        if carrier == "mooncake":
            self._store = start_mooncake(STORE_BYTES, folder / "snapshots" if has_snapshots else None)
        self._directory = start_valkey()
        self._replicas: dict[str, Replica] = {}
        key = folder / "fleet.key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)
        self._options: dict[str, Any] = {
            "fleet_store": f"file://{folder / 'kv'}" if self._store is None else self._store.url,
            "fleet_directory": self._directory.url,
            "fleet_key_file": str(key),
            "fleet_wait_seconds": wait_s,
            "host_bytes": HOST_BYTES,
        }
        self._kept: dict[bytes, bytes] = {}
        self._entries: Any = valkey.Valkey.from_url(self._directory.url, socket_timeout=5.0)

    @property
    def a(self) -> Replica:
        return self._replica("a")

    @property
    def b(self) -> Replica:
        return self._replica("b")

    def publish(self, item: Item, salt: str, by: Replica | None = None) -> None:
        """``by`` (default: ``a``) serves the item's donors; returns when the fleet can find all of them.

        A store that was just restarted may refuse a donor, and nothing is written twice: it is served again.
        """
        for donor in item.donors:
            self._publish(donor, salt, by or self.a)

    def _publish(self, donor: tuple[int, ...], salt: str, replica: Replica) -> None:
        expected = self.entries() + _entries_of(donor)
        for _ in range(PUBLICATIONS):
            replica.subject.client.timed(Ask(donor, 1, salt, reuse=False, capture=True))
            if _is_soon(lambda: self.entries() >= expected, PUBLISHED_S, lambda: _poke(replica.subject)):
                return
            replica.forget_donors()
        raise FleetError(f"the donor was not announced within {PUBLISHED_S:.0f} s, {PUBLICATIONS} times")

    def entries(self) -> int:
        return int(self._entries.dbsize())

    def keep_entries(self) -> None:
        """Remember what the directory holds."""
        keys = list(self._entries.scan_iter(count=1000))
        self._kept = dict(zip(keys, self._entries.mget(keys), strict=True))

    def announce_again(self) -> None:
        """What the directory held then, as replicas would that still believe in their donors."""
        self._entries.mset(self._kept)

    def restart(self, part: str) -> None:
        """On its old port, empty but for what snapshots kept."""
        if part == "directory":
            self._directory = start_valkey(port=self._directory.port)
            return
        assert self._store is not None
        if part == "store node":
            self._store.restart_node()
        else:
            self._store.restart_master()
        store = open_carrier(self._store.url, STORE_BYTES)
        _wait_until(lambda: _is_written(store, secrets.token_hex(16)), "the store takes no object again")

    def send_signal(self, part: str, number: signal.Signals) -> None:
        server = self._server(part)
        os.kill(server.pid, number)
        if number is signal.SIGKILL:
            server.stop()

    def _server(self, part: str) -> EngineServer:
        if part == "directory":
            return self._directory
        assert self._store is not None
        return self._store.node if part == "store node" else self._store.master

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in self._replicas.values():
            replica.stop()
        self._directory.stop()
        if self._store is not None:
            self._store.stop()

    def _replica(self, name: str) -> Replica:
        if name not in self._replicas:
            self._replicas[name] = Replica(name, self._options, self._folder, self.model)
            progress(f"replica {name} shares donors")
        return self._replicas[name]


def _entries_of(donor: tuple[int, ...]) -> int:
    """What announcing a donor adds to the directory: its record and its anchors."""
    tokens = np.asarray(donor, np.uint32)
    return 1 + len(np.unique(thin_periodic(select_anchors(tokens)).hashes))


def _is_written(store: KvCarrier, name: str) -> bool:
    try:
        return store.put(name, np.zeros(1000, np.uint8))
    except CarrierError:
        return False


def _poke(subject: Subject) -> None:
    """An idle engine takes no steps, and captures end in one."""
    subject.client.whole(Ask(range(50, 58), 1, "poke", reuse=False))


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    if not _is_soon(condition, PATIENCE_S):
        raise FleetError(f"{otherwise} within {PATIENCE_S:.0f} s")


def _is_soon(condition: Callable[[], bool], patience_s: float, poke: Callable[[], object] = lambda: None) -> bool:
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > patience_s:
            return False
        time.sleep(POLL_S)
        poke()
    return True
