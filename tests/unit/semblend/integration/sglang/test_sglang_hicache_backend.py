"""The storage backend over a double of the engine's host pool, and donors copied from slots and pages alike."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semblend.integration.sglang.hicache_doubles import (
    Config,
    HostPool,
    Key,
    blind_to_tenants,
    chained,
    install,
)

from sembase.errors import ConfigurationError
from semblend.kv.rope import LayerRotations, half_split, no_rotation

pytestmark = pytest.mark.models

PAGE = HostPool.page_size


def rotations(layers: int) -> LayerRotations:
    """Every layer has its own, the last one none."""
    return LayerRotations([half_split(10000.0 + layer, 8) for layer in range(layers - 1)] + [no_rotation()])


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[Any, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


@pytest.fixture
def storage(modules: tuple[Any, Any]) -> Any:
    made = modules[0].SemBlendStorage(Config(), {})
    made.register_mem_pool_host(filled_pool())
    return made


def filled_pool() -> HostPool:
    pool = HostPool()
    pool.kv_buffer.copy_(torch.randn(pool.kv_buffer.shape, generator=torch.Generator().manual_seed(1)))
    return pool


def indices(*pages: int) -> torch.Tensor:
    return torch.tensor([page * PAGE + token for page in pages for token in range(PAGE)])


def test_pages_return_to_other_places_of_the_pool_bit_for_bit(storage: Any) -> None:
    pool = storage.mem_pool_host
    before = pool.kv_buffer.clone()
    assert storage.batch_set_v1(["a", "b", "c"], indices(0, 1, 2)) == [True] * 3
    assert storage.batch_exists(["a", "b", "x", "c"]) == 2
    assert storage.batch_get_v1(["a", "b", "x", "c"], indices(4, 5, 6, 7)) == [True, True, False, False]
    for source, place in ((0, 4), (1, 5)):
        assert torch.equal(
            pool.kv_buffer[:, :, place * PAGE : (place + 1) * PAGE], before[:, :, source * PAGE : (source + 1) * PAGE]
        )
    assert torch.equal(pool.kv_buffer[:, :, 6 * PAGE :], before[:, :, 6 * PAGE :]), "nothing behind a gap is written"


def test_the_calls_without_indices_give_the_same_pages(storage: Any) -> None:
    pool = storage.mem_pool_host
    pages = [pool.get_data_page(0), pool.get_data_page(PAGE)]
    assert storage.batch_set(["a", "b"], pages)
    targets = [torch.zeros_like(pages[0]) for _ in range(3)]
    found = storage.batch_get(["a", "b", "x"], targets)
    assert found[2] is None
    assert torch.equal(found[0], pages[0])
    assert torch.equal(targets[1], pages[1])
    assert storage.exists("a")
    assert not storage.exists("x")
    assert storage.get("a", torch.zeros(3)) is None, "a target of another size gets nothing"
    assert not storage.batch_set(["a", "b"], pages[:1])
    storage.clear()
    assert storage.batch_exists(["a"]) == 0


def test_what_the_pool_does_afterwards_changes_no_page(storage: Any) -> None:
    view = storage.mem_pool_host.kv_buffer[0, 0, :PAGE]
    kept = view.clone()
    storage.set("a", view)
    storage.mem_pool_host.kv_buffer.zero_()
    assert torch.equal(storage.get("a"), kept.reshape(-1))


def test_the_last_pages_of_a_prompt_leave_first(modules: tuple[Any, Any]) -> None:
    pool = filled_pool()
    room = 2 * pool.get_data_page(0).nbytes
    small = modules[0].SemBlendStorage(Config(extra_config={"budget_bytes": room}), {})
    small.register_mem_pool_host(pool)
    small.batch_set_v1(["0", "1", "2"], indices(0, 1, 2))
    assert small.batch_exists(["0", "1", "2"]) == 2
    assert small.stats().held_bytes == room


def test_before_the_pool_is_known_nothing_is_kept_or_served(modules: tuple[Any, Any]) -> None:
    early = modules[0].SemBlendStorage(Config(), {})
    assert not early.set("a", torch.zeros(4))
    assert early.batch_set_v1(["a"], indices(0)) == [False]
    assert early.get("a") is None
    assert early.batch_exists(["a"]) == 0
    assert early.batch_get_v1(["a"], indices(0)) == [False]


@pytest.mark.parametrize(
    "extra", [{"budget_bytes": 0}, {"budget_bytes": "1"}, {"budget_byte": 1}, {"budget_bytes": True}]
)
def test_a_wrong_configuration_stops_the_start(modules: tuple[Any, Any], extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="budget_byte"):
        modules[0].SemBlendStorage(Config(extra_config=extra), {})


def test_a_model_without_a_name_has_no_namespace(modules: tuple[Any, Any]) -> None:
    made = modules[0].SemBlendStorage(Config(model_name=None), {})
    with pytest.raises(ConfigurationError, match="served-model-name"):
        made.register_mem_pool_host(HostPool())


def test_an_engine_whose_hashes_ignore_tenants_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        backend, _ = install(patch, blind_to_tenants)
        with pytest.raises(ConfigurationError, match="tenants would share KV"):
            backend.SemBlendStorage(Config(), {})


def test_donor_hashes_are_the_engines_from_the_first_missing_page_on(modules: tuple[Any, Any]) -> None:
    key = Key(array("q", range(4 * PAGE + 1)), "tenant")
    assert modules[1].stored_hashes(key, 2 * PAGE, PAGE) == chained(key, None, PAGE)[2:4]
    assert modules[1].stored_hashes(key, 4 * PAGE, PAGE) == []


@given(st.integers(0, 6), st.integers(0, 6 * PAGE - 1), st.integers(1, 6 * PAGE), st.integers(-40, 40))
def test_slots_and_pages_give_what_slots_alone_give(
    modules: tuple[Any, Any], pages_on_device: int, start: int, length: int, shift: int
) -> None:
    """The oracle is the donor with all its pages on the device."""
    donor_kv = modules[1]
    length = min(length, 6 * PAGE - start)
    pool = filled_pool()
    slots, own = torch.arange(6 * PAGE), torch.arange(6 * PAGE, 6 * PAGE + length)
    pages = [pool.get_data_page(page * PAGE) for page in range(pages_on_device, 6)]
    results = []
    for held in (donor_kv.DonorKV(slots, ()), donor_kv.DonorKV(slots[: pages_on_device * PAGE], pages)):
        room = torch.zeros(2, pool.layer_num, 6 * PAGE, pool.head_num, pool.head_dim)
        buffers = torch.cat([pool.kv_buffer[:, :, : 6 * PAGE], room], dim=2)
        device = SimpleNamespace(k_buffer=list(buffers[0]), v_buffer=list(buffers[1]))
        donor_kv.DonorCopier(device, rotations(pool.layer_num), PAGE).copy(held, start, own, shift)
        results.append(buffers)
    assert torch.equal(*results)


def test_pages_that_end_too_early_are_an_error(modules: tuple[Any, Any]) -> None:
    pool = filled_pool()
    device = SimpleNamespace(k_buffer=list(pool.kv_buffer[0]), v_buffer=list(pool.kv_buffer[1]))
    copier = modules[1].DonorCopier(device, rotations(pool.layer_num), PAGE)
    held = modules[1].DonorKV(torch.arange(PAGE), [pool.get_data_page(0)])
    with pytest.raises(ValueError, match="2 pages to read, 1 held"):
        copier.copy(held, PAGE, torch.arange(PAGE + 1), 3)


def test_a_copy_waits_for_the_forward_pass_in_flight(modules: tuple[Any, Any]) -> None:
    pool = filled_pool()
    keys, values = list(pool.kv_buffer[0]), list(pool.kv_buffer[1])
    donor, own = torch.arange(PAGE), torch.arange(PAGE, 2 * PAGE)
    for side in (*keys, *values):
        side[:PAGE] = 0.0

    def end_pass() -> None:
        """The pass that computes the donor ends only now."""
        for side in values:
            side[:PAGE] = 7.0

    copier = modules[1].DonorCopier(
        SimpleNamespace(k_buffer=keys, v_buffer=values), rotations(pool.layer_num), PAGE, end_pass
    )
    copier.copy(modules[1].DonorKV(donor, ()), 0, own, 3)
    assert all(bool((side[own] == 7.0).all()) for side in values)
