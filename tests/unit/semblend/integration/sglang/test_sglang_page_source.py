"""Pages through the calls of a storage backend; a backend that does not give back what it got is refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.unit.semblend.integration.sglang.hicache_doubles import HostPool

from semblend.integration.border import Border
from semblend.integration.sglang.page_source import STAGED_PAGES, PageSource, PageSourceError, source_of
from semblend.integration.sglang.written_pages import WrittenPages, watch

pytestmark = pytest.mark.models


class Pool(HostPool):
    size, page_num = 32, 8

    def get_dummy_flat_data_page(self) -> torch.Tensor:
        return torch.zeros(2 * self.layer_num * self.page_size * self.head_num * self.head_dim)


class FlatStorage:
    """As the engine's ``file`` backend: flat pages in, flat pages out."""

    def __init__(self) -> None:
        self.pages: dict[str, torch.Tensor] = {}

    def register_mem_pool_host(self, pool: Any) -> None:
        self.pool = pool

    def batch_exists(self, hashes: Sequence[str]) -> int:
        return next((number for number, each in enumerate(hashes) if each not in self.pages), len(hashes))

    def batch_get(self, hashes: Sequence[str], targets: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        found = zip((self.pages.get(each) for each in hashes), targets, strict=True)
        return [None if page is None else target.copy_(page) for page, target in found]

    def batch_set(self, hashes: Sequence[str], pages: Sequence[torch.Tensor]) -> bool:
        for each, page in zip(hashes, pages, strict=True):
            self.pages.setdefault(each, page.clone())
        return True


class PooledStorage(FlatStorage):
    """As the engine's ``mooncake`` backend: it reads into the pool that it was given, and writes out of it."""

    def batch_get_v1(self, hashes: Sequence[str], slots: torch.Tensor) -> list[bool]:
        for number, each in enumerate(hashes):
            self.pool.set_from_flat_data_page(int(slots[number * self.pool.page_size]), self.pages[each])
        return [True] * len(hashes)

    def batch_set_v1(self, hashes: Sequence[str], slots: torch.Tensor) -> list[bool]:
        firsts = slots[:: self.pool.page_size].tolist()
        return [self.batch_set([each], [self.pool.get_data_page(at)]) for each, at in zip(hashes, firsts, strict=True)]


def both() -> list[tuple[FlatStorage, PageSource]]:
    flat, pooled = FlatStorage(), PooledStorage()
    pooled.register_mem_pool_host(Pool())
    return [
        (flat, PageSource(flat, Pool(), is_zero_copy=False)),
        (pooled, PageSource(pooled, Pool(), is_zero_copy=True)),
    ]


def test_what_was_written_is_read_in_order_and_in_memory_of_its_own() -> None:
    for storage, source in both():
        source.prove()
        pages = {f"{number}": torch.full((96 * 4,), float(number)) for number in range(2 * STAGED_PAGES + 3)}
        storage.pages.update(pages)
        read = source.read(list(pages))
        assert read is not None
        assert all(torch.equal(page, pages[f"{number}"]) for number, page in enumerate(read))
        again = source.read(["1", "0"])
        assert again is not None
        assert torch.equal(read[0], pages["0"]), "a later read does not change pages read before"
        assert source.read(["0", "gone", "1"]) is None
        assert source.count_leading(["0", "1", "gone", "2"]) == 2


def test_reads_leave_the_engines_own_pool_alone() -> None:
    storage, pool = PooledStorage(), Pool()
    storage.register_mem_pool_host(pool)
    source = PageSource(storage, pool, is_zero_copy=True)
    source.prove()
    storage.pages["page"] = torch.ones(96 * 4)
    source.read(["page"])
    assert storage.pool is pool
    assert not pool.kv_buffer.any()


class Forgetful(FlatStorage):
    def batch_set(self, hashes: Sequence[str], pages: Sequence[torch.Tensor]) -> bool:
        return True


class Rounding(FlatStorage):
    def batch_set(self, hashes: Sequence[str], pages: Sequence[torch.Tensor]) -> bool:
        return super().batch_set(hashes, [page.half().float() for page in pages])


class Refusing(FlatStorage):
    def batch_set(self, hashes: Sequence[str], pages: Sequence[torch.Tensor]) -> bool:
        return False


class Claiming(FlatStorage):
    def batch_exists(self, hashes: Sequence[str]) -> int:
        return len(hashes)


class Pretending(PooledStorage):
    def batch_get_v1(self, hashes: Sequence[str], slots: torch.Tensor) -> list[bool]:
        return [True] * len(hashes)


@pytest.mark.parametrize("kind", [Forgetful, Rounding, Refusing, Claiming, Pretending])
def test_a_storage_that_does_not_keep_pages_is_refused(kind: type[FlatStorage]) -> None:
    with pytest.raises(PageSourceError):
        PageSource(kind(), Pool(), is_zero_copy=issubclass(kind, PooledStorage)).prove()


def test_without_a_storage_or_with_another_layout_there_is_no_source() -> None:
    with pytest.raises(PageSourceError, match="no storage"):
        source_of(SimpleNamespace(storage_backend=None))
    pool = Pool()
    pool.layout = "page_head"
    with pytest.raises(PageSourceError, match="page_head"):
        PageSource(FlatStorage(), pool, is_zero_copy=False)


def test_a_replica_vouches_for_pages_that_it_wrote_itself_and_for_no_others() -> None:
    storage, pool, stored = FlatStorage(), Pool(), list[str]()
    source = PageSource(storage, pool, is_zero_copy=False)
    pool.kv_buffer.normal_()

    def write(hashes: Sequence[str], slots: torch.Tensor, extra: object = None) -> bool:
        return storage.batch_set(hashes, [pool.get_data_page(int(at)) for at in slots[:: pool.page_size]])

    controller = SimpleNamespace(page_set_func=write, storage_host_pool=pool)
    written = WrittenPages(stored.extend)
    watch(controller, source, written, Border(lambda fault: None, logging.getLogger("test")))
    storage.pages["of another"] = torch.zeros(96 * 4)
    slots = torch.arange(3 * pool.page_size)
    assert controller.page_set_func(["one", "of another", "three"], slots, None)
    assert stored == ["one", "of another", "three"]
    one, other, three = written.digests(["one", "of another", "three"])
    assert one is not None
    assert other is None
    assert three not in (None, one)
    assert controller.page_set_func(["one"], slots[: pool.page_size], None), "it is there already, and it is still ours"
    assert written.digests(["one"]) == [one]
