"""What this router shares with the others of its fleet, through Valkey; nothing where no address is set.

In: the settings and the parts that hold the state; out: background tasks, a warm start, metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from semgate.http.client_keys import ClientKeys
from semgate.index.keys import use_secret
from semgate.placement.affinity import SessionHomes
from semgate.router.state.known_blocks import KnownBlocks
from semgate.router.state.metrics import Sample
from semgate.router.state.roster import Roster
from semgate.settings import RouterSettings
from semgate.shared.exchange import Exchange
from semgate.shared.snapshots import Snapshots
from semgate.shared.store import SharedStore, StoreError

# A start waits this long for the store at most; what is restored later is used from then on.
RESTORE_SECONDS: Final = 4.0

Task = tuple[str, Callable[[], Coroutine[Any, Any, None]]]


class SharedState:
    def __init__(
        self,
        settings: RouterSettings,
        secret: bytes,
        blocks: KnownBlocks,
        roster: Roster,
        homes: SessionHomes,
        clients: ClientKeys | None,
    ) -> None:
        self._store: SharedStore | None = None
        if not settings.shared_state_url:
            return
        use_secret(secret)  # a snapshot's block keys are those of every router
        router = secrets.token_hex(8)
        self._blocks = blocks
        self._interval_s = settings.snapshot_seconds
        self._store = SharedStore(settings.shared_state_url, settings.shared_state_space, secret)
        self._snapshots = Snapshots(self._store, router, self._interval_s)
        blocks.load_state = self._snapshots.load
        self._exchange = Exchange(
            self._store,
            router,
            drains=roster,
            homes=homes,
            tenants=dict if clients is None else clients.tenants,
            clock_s=time.monotonic,
        )

    def tasks(self) -> Iterable[Task]:
        if self._store is None:
            return
        yield "shared state", self._exchange.run
        if self._interval_s > 0:
            yield "snapshots", partial(self._snapshots.run, self._blocks.streams)

    async def restored(self) -> None:
        """A restarted router knows drains, sessions and blocks before it is ready; without the store it starts cold."""
        if self._store is None:
            return
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(RESTORE_SECONDS):
                await self._exchange.round()
                await self._blocks.restored()

    async def close(self) -> None:
        if self._store is not None:
            await self._exchange.leave()
            await self._store.close()

    def samples(self) -> Iterable[Sample]:
        store = self._store
        if store is None:
            return
        yield "gauge", "semgate_shared_up", "1 while the shared state answers.", {}, float(store.is_up)
        yield "counter", "semgate_shared_failures", "Calls of the shared state that failed.", {}, store.failures
        refused = store.refused
        yield "counter", "semgate_shared_refused", "Values in the shared state that no router sealed.", {}, refused
        saved, restored = self._snapshots.saved, self._snapshots.restored
        yield "counter", "semgate_snapshots_saved", "Snapshots that this router wrote.", {}, saved
        yield "counter", "semgate_snapshot_blocks_restored", "Blocks read from snapshots.", {}, restored
        learnt = self._exchange.sessions_learnt
        yield "counter", "semgate_sessions_learnt", "Sessions that other routers reported.", {}, learnt
