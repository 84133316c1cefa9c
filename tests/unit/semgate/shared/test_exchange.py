"""What routers share: a drain that changes while a round is on its way is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest

from semgate.placement.affinity import SessionHomes
from semgate.shared.exchange import Exchange
from semgate.shared.store import SharedStore, StoreError


class Roster:
    def __init__(self) -> None:
        self.drained: set[str] = set()
        self.changes: dict[str, bool] = {}

    def drain(self, name: str, drained: bool) -> None:
        (self.drained.add if drained else self.drained.discard)(name)
        self.changes[name] = drained

    def take_drain_changes(self) -> dict[str, bool]:
        taken, self.changes = self.changes, {}
        return taken

    def set_drained(self, names: Iterable[str]) -> None:
        self.drained = set(names)


class Pipeline:
    def __init__(self, names: set[bytes]) -> None:
        self._names = names

    def sadd(self, _: str, name: str) -> None:
        self._names.add(name.encode())

    def srem(self, _: str, name: str) -> None:
        self._names.discard(name.encode())

    def smembers(self, _: str) -> None:
        """Answered by ``execute``."""

    async def execute(self) -> list[Any]:
        return [set(self._names)]


class Store:
    """A store in memory. ``meanwhile`` runs while a call is on its way."""

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self.meanwhile: Callable[[], None] = lambda: None
        self.is_gone = False

    def key(self, name: str) -> str:
        return name

    def pipeline(self, *, transaction: bool) -> Pipeline:
        assert transaction
        return Pipeline(self.names)

    async def call(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        self.meanwhile()
        if self.is_gone:
            raise StoreError("planted")
        return await work(self)


def sharing() -> tuple[Roster, Store, Callable[[], None]]:
    roster, store = Roster(), Store()
    exchange = Exchange(
        cast(SharedStore, store), "one", drains=roster, homes=SessionHomes(), tenants=dict, clock_s=lambda: 0.0
    )
    return roster, store, lambda: asyncio.run(exchange._share_drains())


@pytest.mark.parametrize("drained", [True, False])
def test_a_drain_that_changes_during_a_round_is_shared_by_the_next(drained: bool) -> None:
    roster, store, share = sharing()
    roster.drain("a", not drained)
    share()

    def change() -> None:
        store.meanwhile = lambda: None
        roster.drain("a", drained)

    store.meanwhile = change
    share()
    assert ("a" in roster.drained) is drained, "the operator's word holds here at once"
    share()
    assert ("a" in roster.drained) is drained
    assert (b"a" in store.names) is drained, "and everywhere after the next round"


def test_a_drain_during_an_outage_is_shared_after_it() -> None:
    roster, store, share = sharing()
    roster.drain("a", True)
    store.is_gone = True
    with pytest.raises(StoreError):
        share()
    store.is_gone = False
    share()
    assert store.names == {b"a"}
    assert roster.drained == {"a"}
