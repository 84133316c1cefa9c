"""Replicas over one storage and one directory, without an engine: what is borrowed, refused and waited for."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("blake3")

import torch
from numpy.typing import NDArray
from tests.clock import Clock
from tests.fakes.memory_directory import MemoryDirectory
from tests.unit.semblend.integration.sglang.trackers import OPEN, words
from tests.waiting import wait_until

from semblend.contract import Event, Namespace, ReusePlan
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_object import RowShape
from semblend.fleet.page_records import PageRecord, page_digest
from semblend.integration.border import Border
from semblend.integration.core.fleet_access import DirectoryAccess
from semblend.integration.sglang import fleet_spaces
from semblend.integration.sglang.borrowed_donors import BorrowedDonors
from semblend.integration.sglang.donor_announcements import DonorAnnouncements
from semblend.integration.sglang.donors import Donors
from semblend.integration.sglang.fleet_donors import FleetDonors
from semblend.integration.sglang.fleet_spaces import FleetSpaces
from semblend.integration.sglang.metrics import EngineMetrics
from semblend.integration.sglang.namespace import TreeTenant
from semblend.integration.sglang.page_reads import ABSENT_SECONDS
from semblend.integration.sglang.written_pages import bytes_of
from semblend.pipeline.planner import Planner
from semblend.settings import Settings

pytestmark = pytest.mark.models

PAGE = 16
WAIT_S = 1000.0
Tokens = NDArray[np.uint32]
ONE, TWO = TreeTenant(None, "one"), TreeTenant(None, "two")


def space_of(tenant: TreeTenant) -> Namespace:
    return Namespace(tenant=tenant.cache_salt, model="m")


def hashes_of(tokens: Tokens, tenant: TreeTenant) -> list[str]:
    seed, hashes = repr(tenant), []
    for start in range(0, len(tokens) // PAGE * PAGE, PAGE):
        seed = hashlib.sha256(seed.encode() + tokens[start : start + PAGE].tobytes()).hexdigest()
        hashes.append(seed)
    return hashes


def page_of(page_hash: str) -> torch.Tensor:
    """The KV of a page: a function of all tokens up to its end."""
    return torch.from_numpy(np.random.default_rng(int(page_hash[:12], 16)).standard_normal(64))


class Storage:
    """Shared pages. ``gate``: reads hang while it is closed."""

    page_tokens = PAGE

    def __init__(self) -> None:
        self.pages: dict[str, torch.Tensor] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.reads = 0

    def count_leading(self, hashes: Sequence[str]) -> int:
        self.gate.wait()
        return next((number for number, each in enumerate(hashes) if each not in self.pages), len(hashes))

    def read(self, hashes: Sequence[str]) -> list[torch.Tensor] | None:
        self.gate.wait()
        self.reads += len(hashes)
        found = [self.pages.get(each) for each in hashes]
        return None if any(page is None for page in found) else [page.clone() for page in found if page is not None]


class World:
    def __init__(self, folder: Path) -> None:
        self.key_file = folder / "key"
        self.key_file.write_bytes(b"a secret of the fleet, 32 bytes.")
        self.storage = Storage()
        self.directory = MemoryDirectory()
        self.clock = Clock()
        self.replicas: list[Replica] = []

    def replica(self, **options: Any) -> Replica:
        self.replicas.append(Replica(self, **options))
        return self.replicas[-1]


class Replica:
    def __init__(self, world: World, host_bytes: int = 1 << 20, min_stored_tokens: int = 1 << 20) -> None:
        self.storage = world.storage
        access = DirectoryAccess("valkey://127.0.0.1:1", world.key_file)
        access.directory = world.directory
        self.events: list[Event] = []
        self.faults: list[object] = []
        border = Border(self.faults.append, logging.getLogger("test"))
        self.planner = Planner(settings=Settings(embedder="none"), gates=OPEN, budget_bytes=1 << 24)
        self.donors = Donors(self.planner, self.events.append, 128, PAGE)
        spaces = FleetSpaces(access, space_of(ONE), RowShape(1, 2, 1, 8), "16:layer_first")
        self.announcements = DonorAnnouncements(spaces, hashes_of, PAGE, border)
        metrics = EngineMetrics(SimpleNamespace())
        self.recorded = metrics._recorder.data["labelled"]
        self.borrowed = BorrowedDonors(
            spaces,
            self.storage,  # type: ignore[arg-type]
            hashes_of,
            self.planner,
            self.donors,
            metrics,
            border,
            wait_s=WAIT_S,
            host_bytes=host_bytes,
            min_stored_tokens=min_stored_tokens,
            clock=world.clock,
        )
        self.fleet = FleetDonors(spaces, self.announcements, self.borrowed, border)
        self.donors.on_added = self.fleet.added
        wait_until(lambda: spaces.keys_of(space_of(ONE)) is not None)

    def captures(self, tokens: Tokens, tenant: TreeTenant = ONE, skip: Sequence[int] = ()) -> None:
        """The prompt is in the tree, and its pages are written; those of ``skip`` were in the storage before."""
        self.fleet.arrived("own", tokens, space_of(tenant), tenant, reuse=False)
        assert self.donors.add("own", tokens, space_of(tenant)) is not None
        digests: dict[str, bytes | None] = {}
        for number, each in enumerate(hashes_of(tokens, tenant)):
            digests[each] = None if number in skip else page_digest(bytes_of(page_of(each)))
            self.storage.pages.setdefault(each, page_of(each))
        self.announcements.written.stored(digests)
        self.announcements._pool.submit(lambda: None).result()
        self.announcements._pool.submit(lambda: None).result()

    def asks(self, rid: str, tokens: Tokens, tenant: TreeTenant = ONE) -> ReusePlan | None:
        """A request that waits for what it may wait for, and is then looked up."""
        self.starts(rid, tokens, tenant)
        wait_until(lambda: not self.borrowed.waits(rid))
        return self.plans(tokens, tenant)

    def starts(self, rid: str, tokens: Tokens, tenant: TreeTenant = ONE) -> None:
        self.fleet.arrived(rid, tokens, space_of(tenant), tenant, reuse=True)

    def plans(self, tokens: Tokens, tenant: TreeTenant = ONE) -> ReusePlan | None:
        self.borrowed.take()
        plan = self.planner.plan(tokens, space_of(tenant))
        return plan if isinstance(plan, ReusePlan) else None

    def count(self, name: str, label: str) -> int:
        return int(self.recorded.get(name, {}).get(label, 0))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(fleet_spaces, "model_content", lambda _: "weights")
    made = World(tmp_path)
    yield made
    made.storage.gate.set()
    for replica in made.replicas:
        replica.fleet.close()
        assert not replica.faults


DONOR = words(1, 512)
PROMPT = np.concatenate([words(2, 70), DONOR[64:448], words(3, 20)])
REUSED = 300  # of the 384 tokens that both have


def test_a_donor_of_another_replica_is_found_read_and_planned(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    plan = b.asks("r", PROMPT)
    assert plan is not None
    assert plan.reused_tokens >= REUSED
    (donor_id,) = plan.donor_ids
    pages = b.borrowed.fetched.get(donor_id)
    assert pages is not None
    hashes = hashes_of(DONOR, ONE)
    for run in plan.runs:
        for page in range(run.donor_start // PAGE, -(-(run.donor_start + run.length) // PAGE)):
            assert torch.equal(pages[page], page_of(hashes[page]))
    assert b.count("fleet_fetches", "fetched") == b.count("fleet_searches", "found") == 1


def test_only_the_pages_of_the_plan_are_read(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(words(1, 2048))
    assert b.asks("r", np.concatenate([words(2, 70), words(1, 2048)[512:1024], words(3, 20)])) is not None
    assert world.storage.reads <= (512 + OPEN.boundary_recompute_tokens) // PAGE + 1
    assert b.borrowed.fetched.held_bytes == world.storage.reads * 64 * 8


def test_a_part_of_a_donor_gives_the_plan_that_an_own_donor_gives(world: World) -> None:
    """The tokens before a run are read as well, so its recomputed beginning is not cut off a second time."""
    a, b, own = world.replica(), world.replica(), world.replica()
    donor = words(1, 2048)
    for start in (512, 517, 527):
        prompt = np.concatenate([words(start, 70), donor[start : start + 600], words(3, 20)])
        if start == 512:
            a.captures(donor)
            own.captures(donor)
        remote, local = b.asks(f"{start}", prompt), own.plans(prompt)
        assert remote is not None
        assert local is not None
        runs = [[(run.donor_start, run.target_start, run.length) for run in plan.runs] for plan in (remote, local)]
        assert runs[0] == runs[1]
        b.fleet.forget_all()
        b.donors.clear()


def test_a_second_request_reads_nothing_again(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    b.asks("r", PROMPT)
    reads = world.storage.reads
    assert b.asks("s", PROMPT) is not None
    assert world.storage.reads == reads


def poisons() -> dict[str, torch.Tensor]:
    page = page_of(hashes_of(DONOR, ONE)[10])
    flipped, deep = page.clone(), page.clone()
    flipped.view(torch.uint8)[100] ^= 1
    deep[8:] = 1.0
    other, tenant = page_of(hashes_of(words(9, 512), ONE)[10]), page_of(hashes_of(DONOR, TWO)[10])
    return {"changed": flipped, "deep": deep, "other": other, "tenant": tenant}


@pytest.mark.parametrize("kind", list(poisons()))
def test_pages_that_their_writer_did_not_compute_are_refused(world: World, kind: str) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    world.storage.pages[hashes_of(DONOR, ONE)[10]] = poisons()[kind]
    assert b.asks("r", PROMPT) is None
    assert b.count("fleet_fetches", "refused") == 1
    assert not len(b.borrowed.fetched)
    reads = world.storage.reads
    assert b.asks("s", PROMPT) is None
    assert world.storage.reads == reads, "its announcement was withdrawn"


def test_without_the_tags_a_poisoned_page_would_be_served(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    monkeypatch.setattr(PageRecord, "fits", lambda *_: True)
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    poison = world.storage.pages[hashes_of(DONOR, ONE)[10]] = poisons()["deep"]
    plan = b.asks("r", PROMPT)
    assert plan is not None
    pages = b.borrowed.fetched.get(plan.donor_ids[0])
    assert pages is not None
    assert torch.equal(pages[10], poison)


def test_pages_that_were_in_the_storage_before_are_not_borrowed(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR, skip=range(12))
    plan = b.asks("r", PROMPT)
    assert plan is not None
    assert min(run.donor_start for run in plan.runs) >= 12 * PAGE
    assert world.storage.reads <= (448 // PAGE) - 12 + 1


def test_a_record_that_vouches_for_more_is_not_replaced(world: World) -> None:
    a, again, b = world.replica(), world.replica(), world.replica()
    a.captures(DONOR)
    again.captures(DONOR, skip=range(20))
    plan = b.asks("r", PROMPT)
    assert plan is not None
    assert plan.reused_tokens >= REUSED


def test_tenants_share_nothing(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR, ONE)
    assert b.asks("r", PROMPT, TWO) is None
    assert world.storage.reads == 0
    a.captures(words(4, 512), TWO)
    spaces = {space for space, _ in world.directory._records}
    anchors = [{anchor for space, anchor in world.directory._anchors if space == each} for each in spaces]
    assert len(spaces) == 2
    assert not anchors[0] & anchors[1]


def test_a_request_waits_no_longer_than_its_time_and_a_late_donor_serves_later_ones(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    world.storage.gate.clear()
    b.starts("r", PROMPT)
    wait_until(lambda: b.count("fleet_searches", "found") == 1)
    assert b.borrowed.waits("r")
    world.clock.now += WAIT_S
    assert not b.borrowed.waits("r")
    assert b.plans(PROMPT) is None
    b.starts("s", PROMPT)
    wait_until(lambda: not b.borrowed.waits("s"), "a request waits for a read that another gave up")
    world.storage.gate.set()
    wait_until(lambda: b.plans(PROMPT) is not None)


def test_a_storage_that_stops_during_a_search_costs_one_request_its_time(world: World) -> None:
    a, b = world.replica(), world.replica(min_stored_tokens=256)
    a.captures(DONOR)
    world.storage.gate.clear()
    b.starts("r", PROMPT)
    wait_until(lambda: b.borrowed._searching_since is not None)
    assert b.borrowed.waits("r")
    world.clock.now += WAIT_S
    assert not b.borrowed.waits("r")
    b.starts("s", PROMPT)
    assert not b.borrowed.waits("s"), "the search thread hangs"
    world.storage.gate.set()
    wait_until(lambda: b.borrowed._searching_since is None)
    assert b.asks("t", PROMPT) is not None


def test_a_directory_that_fails_costs_one_search_and_is_left_alone_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = world.replica()

    def fails(*_: object) -> None:
        raise DirectoryError("gone")

    monkeypatch.setattr(world.directory, "look_up", fails)
    assert b.asks("r", PROMPT) is None
    assert b.asks("s", PROMPT) is None
    assert b.count("fleet_searches", "unreachable") == b.count("fleet_searches", "paused") == 1


def test_pages_that_are_gone_are_not_looked_for_again_at_once_and_stay_announced(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    held, world.storage.pages = world.storage.pages, {}
    assert b.asks("r", PROMPT) is None
    assert b.count("fleet_fetches", "missing") == 1
    world.storage.pages = held
    assert b.asks("s", PROMPT) is None
    world.clock.now += ABSENT_SECONDS
    assert b.asks("t", PROMPT) is not None


def test_what_the_engine_loads_exactly_is_not_borrowed(world: World) -> None:
    a, b = world.replica(), world.replica(min_stored_tokens=256)
    a.captures(DONOR)
    assert b.asks("r", np.concatenate([DONOR, words(3, 20)])) is None
    assert world.storage.reads == 0
    assert b.asks("s", PROMPT) is not None


def test_host_memory_is_bounded_and_donors_leave_whole(world: World) -> None:
    a, b = world.replica(), world.replica(host_bytes=40 * 64 * 8)
    others = [words(seed, 512) for seed in (11, 12, 13)]
    for number, donor in enumerate(others):
        a.captures(donor)
        assert b.asks(f"r{number}", np.concatenate([words(2, 70), donor, words(3, 20)])) is not None
        assert b.borrowed.fetched.held_bytes <= 40 * 64 * 8
    assert len(b.borrowed.fetched) == len(b.donors) == 1


def test_a_flush_forgets_what_was_read_and_what_is_on_its_way(world: World) -> None:
    a, b = world.replica(), world.replica()
    a.captures(DONOR)
    world.storage.gate.clear()
    b.starts("r", PROMPT)
    wait_until(lambda: b.count("fleet_searches", "found") == 1)
    b.fleet.forget_all()
    assert not b.borrowed.waits("r")
    world.storage.gate.set()
    wait_until(lambda: b.count("fleet_fetches", "fetched") == 1)
    assert b.plans(PROMPT) is None


def test_a_look_up_costs_the_same_with_many_donors(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up in the directory and one of records, whatever it holds."""
    a, b = world.replica(), world.replica()
    for seed in range(100, 140):
        a.captures(words(seed, 256))
    a.captures(DONOR)
    calls: list[int] = []
    records = world.directory.records

    def counted(space: bytes, ids: Sequence[str]) -> list[bytes | None]:
        calls.append(len(ids))
        return records(space, ids)

    monkeypatch.setattr(world.directory, "records", counted)
    assert b.asks("r", PROMPT) is not None
    assert calls == [1]
