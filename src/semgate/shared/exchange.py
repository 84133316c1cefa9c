"""What routers report to each other twice a second: drained replicas, last replicas of sessions, requests in flight.

In: this router's changes; out: those of the others, applied here. Between two rounds each router acts on what it knows,
so a tenant may exceed its limit by what all routers admit in half a second. Without the store each router has its own.
What no router sealed is skipped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Protocol

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


Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]  # no NaN


class _Batch(msgspec.Struct, array_like=True):
    """Notes of sessions: (key, replica, prompt tokens, seconds ago)."""

    router: str
    notes: list[tuple[bytes, str, Count, Seconds]]


class _InUse(msgspec.Struct, array_like=True):
    at_s: Seconds
    concurrent: dict[str, Count]


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
        """A part that the store refuses does not keep the others from being shared."""
        parts = (self._share_drains(), self._share_sessions(), self._share_in_use())
        for failed in await asyncio.gather(*parts, return_exceptions=True):
            if failed is not None:
                raise failed

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
                batch = self._store.seal(key, _Batch(self._router, notes))
                await client.xadd(key, {"b": batch}, maxlen=MAX_BATCHES, approximate=True)
            return await client.xread({key: self._read_to}, count=MAX_BATCHES)

        try:
            found = await self._store.call(work)
        except StoreError:
            self._homes.give_back_changes(changes)
            raise
        for number, fields in found[0][1] if found else ():
            self._read_to = number.decode()
            batch = self._store.unseal(key, fields.get(b"b", b""), _Batch)
            if batch is not None and batch.router != self._router:
                self._learn(batch, self._clock_s())

    def _learn(self, batch: _Batch, now_s: float) -> None:
        for key, replica, prompt_tokens, age_s in batch.notes:
            self._homes.learn(key, replica, prompt_tokens, now_s - age_s, now_s)
            self.sessions_learnt += 1

    async def _share_in_use(self) -> None:
        tenants = self._tenants()
        if not tenants:
            return
        concurrent = {name: tenant.concurrent for name, tenant in tenants.items() if tenant.concurrent}
        key, own = self._store.key("in-use"), self._router

        async def work(client: Any) -> Any:
            seconds, micros = await client.time()
            at_s = seconds + micros / 1e6
            pipeline = client.pipeline(transaction=True)
            pipeline.hset(key, own, self._store.seal(f"{key}:{own}", _InUse(at_s, concurrent)))
            pipeline.hgetall(key)
            return at_s, (await pipeline.execute())[-1]

        at_s, in_use = await self._store.call(work)
        elsewhere: Counter[str] = Counter()
        for router, sealed in in_use.items():
            name = router.decode("utf-8", "replace")
            report = self._store.unseal(f"{key}:{name}", sealed, _InUse)
            if report is not None and name != own and abs(at_s - report.at_s) < LATE_S:
                elsewhere.update(report.concurrent)
        for name, tenant in tenants.items():
            tenant.concurrent_elsewhere = elsewhere[name]
