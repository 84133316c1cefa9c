"""What routers share survives a round that fails, and changes made while one is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import msgspec
import pytest

from semgate.placement import affinity
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
        self.batches: list[tuple[bytes, dict[bytes, bytes]]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.is_gone = False

    def key(self, name: str) -> str:
        return name

    def seal(self, _: str, value: msgspec.Struct) -> bytes:
        return msgspec.msgpack.encode(value)

    def unseal(self, _: str, sealed: bytes, kind: type[Any]) -> Any:
        return msgspec.msgpack.decode(sealed, type=kind)

    async def xadd(self, _: str, fields: dict[str, bytes], **limits: object) -> None:
        self.batches.append((b"%d-0" % len(self.batches), {name.encode(): value for name, value in fields.items()}))

    async def xread(self, streams: dict[str, str], **limits: object) -> list[Any]:
        return [(b"sessions", self.batches)]

    def pipeline(self, *, transaction: bool) -> Pipeline:
        assert transaction
        return Pipeline(self.names)

    async def call(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        self.meanwhile()
        if self.is_gone:
            raise StoreError("planted")
        return await work(self)


def exchange_of(store: Store, router: str, roster: Roster, homes: SessionHomes) -> Exchange:
    return Exchange(cast(SharedStore, store), router, drains=roster, homes=homes, tenants=dict, clock_s=lambda: 1.0)


def sharing() -> tuple[Roster, Store, Callable[[], None]]:
    roster, store = Roster(), Store()
    exchange = exchange_of(store, "one", roster, SessionHomes())
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


def test_sessions_placed_during_an_outage_are_shared_after_it() -> None:
    store, homes, others = Store(), SessionHomes(), SessionHomes()
    one, two = (exchange_of(store, name, Roster(), of) for name, of in (("one", homes), ("two", others)))
    homes.note("t", "moved", "a", 100, 0.0)
    homes.note("t", "kept", "a", 200, 0.0)
    store.is_gone = True
    store.meanwhile = lambda: homes.note("t", "moved", "b", 300, 1.0)
    with pytest.raises(StoreError):
        asyncio.run(one._share_sessions())
    store.is_gone, store.meanwhile = False, lambda: None
    asyncio.run(one._share_sessions())
    asyncio.run(two._share_sessions())
    found = {session: others.find("t", session, 1.0) for session in ("moved", "kept")}
    assert {session: home and (home.replica, home.prompt_tokens) for session, home in found.items()} == {
        "moved": ("b", 300),
        "kept": ("a", 200),
    }


def test_when_too_many_sessions_wait_the_newest_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "MAX_CHANGES", 3)
    homes = SessionHomes()
    homes.share()

    def replicas() -> list[str]:
        return [home.replica for home in homes.take_changes().values()]

    for number in (1, 2, 3, 1, 4):
        homes.note("t", f"s{number}", f"r{number}", 1, 0.0)
    taken = homes.take_changes()
    assert [home.replica for home in taken.values()] == ["r3", "r1", "r4"]
    homes.note("t", "s5", "r5", 1, 0.0)
    homes.give_back_changes(taken)
    assert replicas() == ["r1", "r4", "r5"]
    assert replicas() == []
