from __future__ import annotations

import asyncio
import json

import pytest

from semgate.fleet import Endpoint, Fleet
from semgate.fleet.models import ROUNDS_KEPT, ModelPools, models_of


def listed(*names: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in names]}).encode()


class Lists:
    def __init__(self, lists: dict[str, bytes | None]) -> None:
        self.lists = lists
        self.fetched: list[str] = []
        self.fleet = Fleet()
        self.apply(*lists)
        self.pools = ModelPools(self.fleet, self.fetch)

    def apply(self, *origins: str) -> None:
        self.fleet.apply([Endpoint(origin[-1], origin) for origin in origins])

    async def fetch(self, origin: str) -> bytes | None:
        self.fetched.append(origin)
        return self.lists[origin]

    def read(self) -> ModelPools:
        asyncio.run(self.pools.read_all())
        return self.pools


A, B, C = "http://h:1", "http://h:2", "http://h:3"


def test_models_and_adapters_have_the_replicas_that_list_them() -> None:
    pools = Lists({A: listed("base", "sql"), B: listed("base"), C: listed("other")}).read()
    assert pools.serving("base") == frozenset({"1", "2"})
    assert pools.serving("sql") == frozenset({"1"})
    assert pools.serving("other") == frozenset({"3"})
    assert pools.serving("unknown") is None
    assert pools.serving(None) is None
    merged = json.loads(pools.merged() or b"")
    assert sorted(entry["id"] for entry in merged["data"]) == ["base", "other", "sql"]


def test_a_fleet_with_one_list_has_no_pools() -> None:
    pools = Lists({A: listed("m"), B: listed("m")}).read()
    assert pools.serving("m") is None
    assert pools.merged() is None


def test_a_replica_whose_list_is_unknown_may_serve_everything() -> None:
    pools = Lists({A: listed("m"), B: listed("n"), C: None}).read()
    assert pools.serving("m") == frozenset({"1", "3"})


def test_a_new_replica_is_read_at_once_and_the_others_every_few_rounds() -> None:
    lists = Lists({A: listed("m"), B: listed("n")})
    lists.read()
    lists.lists[C] = listed("n")
    lists.apply(A, B, C)
    lists.fetched.clear()
    assert lists.read().serving("n") == frozenset({"2", "3"})
    assert lists.fetched == [C]
    lists.lists[A] = listed("m", "adapter")
    for _ in range(ROUNDS_KEPT):
        lists.read()
    assert lists.pools.serving("adapter") == frozenset({"1"})


def test_a_replica_that_left_is_in_no_pool() -> None:
    lists = Lists({A: listed("m"), B: listed("n"), C: listed("n")})
    lists.read()
    lists.apply(A, C)
    assert lists.read().serving("n") == frozenset({"3"})


@pytest.mark.parametrize("page", [None, b"", b"[]", b"{", b'{"data": []}', b'{"data": [{}]}', b'{"data": {"id": 1}}'])
def test_what_is_no_list_of_models_is_unknown(page: bytes | None) -> None:
    assert models_of(page) is None
