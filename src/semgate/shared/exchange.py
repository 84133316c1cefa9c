"""What routers report to each other twice a second: drained replicas, last replicas of sessions, what tenants used.

In: this router's changes; out: those of the others, applied here. Between two rounds each router acts on what it knows,
so a tenant may exceed a limit by what all routers admit in half a second. Without the store each router has its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from semgate.http.client_keys import Tenant
from semgate.logs import log
from semgate.placement.affinity import SessionHomes
from semgate.shared.store import SharedStore, StoreError

ROUND_S: Final = 0.5
MAX_BATCHES: Final = 4_096  # of session notes in the store; the oldest leave first
LATE_S: Final = 5.0  # a router that has not reported for this long has no requests in flight


class Drains(Protocol):
    """The roster, as far as drains go. ``drain_changes`` are by name, since the last call."""

    def take_drain_changes(self) -> dict[str, bool]: ...

    def set_drained(self, names: Iterable[str]) -> None: ...


class _Batch(msgspec.Struct, array_like=True):
    """Notes of sessions: (key, replica, prompt tokens, seconds ago)."""

    router: str
    notes: list[tuple[bytes, str, int, float]]


class _InUse(msgspec.Struct, array_like=True):
    at_s: float
    concurrent: dict[str, int]


class Exchange:
    def __init__(
        self,
        store: SharedStore,
        router: str,
        *,
        drains: Drains,
        homes: SessionHomes,
        tenants: Callable[[], Mapping[str, Tenant]],
        clock_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._router = router
        self._drains = drains
        self._homes = homes
        homes.share()
        self._tenants = tenants
        self._clock_s = clock_s
        self._read_to = "0-0"
        self._pending_drains: dict[str, bool] = {}
        self._totals: dict[bytes, float] | None = None  # what all routers had used, as of the last round
        self.rounds = 0
        self.sessions_learnt = 0

    async def run(self) -> None:
        was_up = True
        while True:
            try:
                await self.round()
            except StoreError as error:
                if was_up:
                    log(logging.WARNING, "shared state cannot be reached; each router acts by itself", why=str(error))
                was_up = False
            else:
                if not was_up:
                    log(logging.INFO, "shared state is back")
                was_up = True
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        await self._share_drains()
        await self._share_sessions()
        await self._share_usage()
        self.rounds += 1

    async def leave(self) -> None:
        """Requests in flight here are over."""
        try:
            await self._store.call(lambda client: client.hdel(self._store.key("in-use"), self._router))
        except StoreError:
            return

    async def _share_drains(self) -> None:
        self._pending_drains |= self._drains.take_drain_changes()
        changes, key = dict(self._pending_drains), self._store.key("drained")

        async def work(client: Any) -> Any:
            pipeline = client.pipeline(transaction=True)
            for name, is_drained in changes.items():
                (pipeline.sadd if is_drained else pipeline.srem)(key, name)
            pipeline.smembers(key)
            return (await pipeline.execute())[-1]

        drained = await self._store.call(work)
        self._pending_drains = self._drains.take_drain_changes()  # changed meanwhile: the next round reports it
        if not self._pending_drains:
            self._drains.set_drained(name.decode("utf-8", "replace") for name in drained)

    async def _share_sessions(self) -> None:
        key, now_s = self._store.key("sessions"), self._clock_s()
        changes = self._homes.take_changes()
        notes = [(name, home.replica, home.prompt_tokens, now_s - home.at_s) for name, home in changes.items()]

        async def work(client: Any) -> Any:
            if notes:
                batch = self._store.seal(msgspec.msgpack.encode(_Batch(self._router, notes)))
                await client.xadd(key, {"b": batch}, maxlen=MAX_BATCHES, approximate=True)
            return await client.xread({key: self._read_to}, count=MAX_BATCHES)

        try:
            found = await self._store.call(work)
        except StoreError:
            self._homes.give_back_changes(changes)
            raise
        for number, fields in found[0][1] if found else ():
            self._read_to = number.decode()
            self._learn(fields.get(b"b", b""), self._clock_s())

    def _learn(self, sealed: bytes, now_s: float) -> None:
        blob = self._store.unseal(sealed)
        if blob is None:
            return
        try:
            batch = msgspec.msgpack.decode(blob, type=_Batch)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return
        if batch.router == self._router:
            return
        for key, replica, prompt_tokens, age_s in batch.notes:
            self._homes.learn(key, replica, prompt_tokens, now_s - age_s, now_s)
            self.sessions_learnt += 1

    async def _share_usage(self) -> None:
        tenants = self._tenants()
        if not tenants:
            return
        used = {name: tenant.take_used() for name, tenant in tenants.items()}
        own = {
            field: amount
            for name, (requests, tokens) in used.items()
            for field, amount in ((f"r:{name}".encode(), requests), (f"t:{name}".encode(), tokens))
            if amount
        }
        concurrent = {name: tenant.concurrent for name, tenant in tenants.items() if tenant.concurrent}

        async def work(client: Any) -> Any:
            seconds, micros = await client.time()
            at_s = seconds + micros / 1e6
            pipeline = client.pipeline(transaction=True)
            for field, amount in own.items():
                pipeline.hincrbyfloat(self._store.key("used"), field, amount)
            mine = msgspec.msgpack.encode(_InUse(at_s, concurrent))
            pipeline.hset(self._store.key("in-use"), self._router, mine)
            pipeline.hgetall(self._store.key("used"))
            pipeline.hgetall(self._store.key("in-use"))
            totals, in_use = (await pipeline.execute())[-2:]
            return at_s, totals, in_use

        try:
            at_s, totals, in_use = await self._store.call(work)
        except StoreError:
            for name, (requests, tokens) in used.items():
                tenants[name].give_back_used(requests, tokens)
            raise
        self._apply_usage(tenants, {field: float(value) for field, value in totals.items()}, own)
        elsewhere = _concurrent_elsewhere(in_use, self._router.encode(), at_s)
        for name, tenant in tenants.items():
            tenant.concurrent_elsewhere = elsewhere.get(name, 0)

    def _apply_usage(
        self, tenants: Mapping[str, Tenant], totals: dict[bytes, float], own: Mapping[bytes, float]
    ) -> None:
        before, self._totals = self._totals, totals
        if before is None:
            return  # what was used before this router started is not counted
        for name, tenant in tenants.items():
            requests, tokens = (
                totals.get(field, 0.0) - before.get(field, 0.0) - own.get(field, 0.0)
                for field in (f"r:{name}".encode(), f"t:{name}".encode())
            )
            tenant.note_used_elsewhere(requests, tokens)


def _concurrent_elsewhere(in_use: Mapping[bytes, bytes], own: bytes, now_s: float) -> dict[str, int]:
    found: dict[str, int] = {}
    for router, raw in in_use.items():
        try:
            report = msgspec.msgpack.decode(raw, type=_InUse)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
        if router != own and now_s - report.at_s < LATE_S:
            for name, count in report.concurrent.items():
                found[name] = found.get(name, 0) + count
    return found
