"""Two engines that share donors: the engine's own scheduler twice, one store, one directory, KV as traces."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.engines.vllm_inside.checks import check_donors, check_faults
from tests.engines.vllm_inside.traces import BYTES_PER_TOKEN, WIDTH
from tests.engines.vllm_inside.world import LOG, World, make_world
from tests.waiting import wait_until

from semblend.fleet.carrier.files import FileCarrier
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.directory.memory import MemoryDirectory
from semblend.fleet.donor_object import ObjectForm, RowShape, pack
from semblend.fleet.keys import SpaceKeys
from semblend.integration.core.fleet_access import FleetAccess
from semblend.integration.vllm.commands import Readiness
from semblend.integration.vllm.fleet_worker import FleetWorker, row_shape
from semblend.kv.donor_store import KVShape

pytestmark = pytest.mark.engine

SHAPE = KVShape(1, 1, WIDTH, torch.int64)


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


DOCUMENT = text(1, 300)
OTHER_PROMPT = text(2, 50) + DOCUMENT + text(3, 20)


class Switch(MemoryDirectory):
    """A directory that can be unplugged."""

    is_gone = False

    def look_up(self, space: bytes, anchors: Any) -> list[str | None]:
        if self.is_gone:
            raise DirectoryError("unplugged")
        return super().look_up(space, anchors)


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Switch:
    """One for all engines of a test."""
    shared = Switch()
    monkeypatch.setattr("semblend.integration.core.fleet_access.open_directory", lambda _: shared)
    return shared


class Fleet:
    """Engines over one store. They wait as long as the machine needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "key").write_bytes(b"k" * 40)
        self.store = folder / "kv"
        shutil.rmtree(self.store, ignore_errors=True)

    def engine(self) -> World:
        places: dict[str, Any] = {"fleet_directory": "memory:", "fleet_key_file": str(self._folder / "key")}
        places |= {"fleet_store": f"file://{self.store}", "fleet_wait_seconds": 600.0}
        world = make_world(self._folder / "model", **places)
        connector, (rank,) = world.scheduler.connector, world.ranks
        rank.half._fleet = FleetWorker(rank.store, SHAPE, FleetAccess(connector._options.fleet), LOG)
        ready = Readiness("", True, "layout", BYTES_PER_TOKEN, fleet_shape=row_shape(SHAPE))
        connector.set_xfer_handshake_metadata({0: ready})
        wait_until(lambda: world.half._remote._content is not None, "the model was never identified")
        return world

    def objects(self) -> list[Path]:
        return [file for file in self.store.rglob("*") if file.is_file() and not file.name.startswith(".")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: an engine's configuration takes a second to make."""
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture
def fleet(folder: Path, directory: Switch) -> Fleet:
    return Fleet(folder)


@pytest.fixture
def arrival(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, reads of the store hang."""
    set_later, read = threading.Event(), FileCarrier.read
    monkeypatch.setattr(FileCarrier, "read", lambda *given: set_later.wait(300.0) and read(*given))
    return set_later


def step_until(world: World, condition: Callable[[], object], otherwise: str) -> None:
    """Steps of an engine that waits for threads."""

    def stepped() -> object:
        return condition() or world.step() or condition()  # type: ignore[func-returns-value]

    wait_until(stepped, otherwise, patience_s=300.0)


def serve(world: World, request_id: str, prompt: list[int], **hints: Any) -> Any:
    """Like ``World.serve``, for a request that may wait for threads."""
    world.add(request_id, prompt, 1, **hints)
    step_until(world, lambda: not world.scheduler.has_requests(), "the request was never answered")
    world.drain()
    return world.replies[request_id]


def capture(fleet: Fleet, world: World, directory: Switch) -> str:
    """Serve the document and wait until the fleet has it; its id."""
    serve(world, "first", DOCUMENT)
    wait_until(lambda: fleet.objects() and directory._records, "the donor was never published")
    (file,) = fleet.objects()
    return file.name


def test_a_donor_of_another_engine_is_reused_like_an_own_one(fleet: Fleet, directory: Switch) -> None:
    one, two = fleet.engine(), fleet.engine()
    capture(fleet, one, directory)
    local = serve(one, "local", OTHER_PROMPT)
    remote = serve(two, "remote", OTHER_PROMPT)
    assert remote["outcome"] == local["outcome"] == "backend_materialized_reuse"
    assert remote["reused_tokens"] == local["reused_tokens"] == 292
    ((done,),) = [report.fetched.values() for report in two.reports if report.fetched]
    assert (done.outcome, done.read_bytes) == ("fetched", ObjectForm(row_shape(SHAPE), 300).total_bytes)
    for world in (one, two):
        check_donors(world)
        check_faults(world)
        assert not any(report.load_faults for report in world.reports)


def test_a_donor_outlives_the_engine_that_captured_it(fleet: Fleet, directory: Switch) -> None:
    capture(fleet, fleet.engine(), directory)
    assert serve(fleet.engine(), "after", OTHER_PROMPT)["reused_tokens"] == 292


def test_a_fetched_donor_is_an_own_donor_from_then_on(fleet: Fleet, directory: Switch) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    serve(two, "a", OTHER_PROMPT)
    directory.is_gone = True
    for file in fleet.objects():
        file.unlink()
    assert serve(two, "b", text(4, 60) + DOCUMENT + text(5, 20))["reused_tokens"] == 292
    assert sum(len(commands.fetches) for commands in two.commands) == 1


def test_equal_documents_of_two_engines_are_one_object(fleet: Fleet, directory: Switch) -> None:
    capture(fleet, fleet.engine(), directory)
    directory.is_gone = True  # the second engine computes it itself
    capture(fleet, fleet.engine(), directory)
    assert len(fleet.objects()) == 1


def test_another_tenant_does_not_get_it(fleet: Fleet, directory: Switch) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    assert serve(two, "salted", OTHER_PROMPT, salt="tenant two")["outcome"] == "cold_fallback"
    assert not any(commands.fetches for commands in two.commands)


def poisoned(file: Path, kind: str) -> None:
    data = np.frombuffer(file.read_bytes(), np.uint8).copy()
    if kind == "flipped byte":
        data[len(data) // 2] ^= 0xFF
    elif kind == "other KV, sealed by a stranger":
        form = ObjectForm(RowShape(1, 2, 1, WIDTH * 8), 300)
        kv = np.zeros((1, 2, 300, 1, WIDTH * 8), np.uint8)
        data = pack(kv, SpaceKeys.derive(b"s" * 40, "tenant"), file.name, bytes(16))
        assert len(data) == form.total_bytes
    else:
        data = data[:100]
    file.chmod(0o600)
    file.write_bytes(data.tobytes())


@pytest.mark.parametrize("kind", ["flipped byte", "other KV, sealed by a stranger", "truncated"])
def test_poison_is_not_served_and_goes(fleet: Fleet, directory: Switch, kind: str) -> None:
    capture(fleet, fleet.engine(), directory)
    poisoned(fleet.objects()[0], kind)
    two = fleet.engine()
    reply = serve(two, "b", OTHER_PROMPT)
    assert reply["outcome"] == "cold_fallback"
    check_donors(two)
    assert not directory._records
    assert not fleet.objects()
    assert len(two.half._remote._fetches) == 0
    assert two.half.donors.held.book._reserved == {}, "its room is free again"


def test_without_store_and_directory_an_engine_serves_by_itself(fleet: Fleet, directory: Switch) -> None:
    directory.is_gone = True
    world = fleet.engine()
    assert serve(world, "a", DOCUMENT)["outcome"] == "cold_fallback"
    assert serve(world, "b", OTHER_PROMPT)["reused_tokens"] == 292


def test_a_request_does_not_wait_beyond_its_time_and_late_bytes_serve_the_next(
    fleet: Fleet, directory: Switch, arrival: threading.Event
) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    remote = two.half._remote
    two.add("b", OTHER_PROMPT, 1, capture=False)
    step_until(two, lambda: remote._fetches, "no fetch was commanded")
    assert remote.waits(two.half._records["b"])
    remote._searches["b"].deadline = 0.0
    two.drain()
    assert two.replies["b"]["outcome"] == "cold_fallback"
    arrival.set()
    step_until(two, lambda: not remote._fetches, "the bytes never arrived")
    directory.is_gone = True
    assert serve(two, "c", text(7, 40) + DOCUMENT + text(5, 20))["reused_tokens"] == 292


def test_a_reset_while_a_donor_is_on_its_way_leaves_nothing_behind(
    fleet: Fleet, directory: Switch, arrival: threading.Event
) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    book, store = two.half.donors.held.book, two.ranks[0].store
    two.add("b", OTHER_PROMPT, 1, capture=False)
    step_until(two, lambda: two.half._remote._fetches, "no fetch was commanded")
    two.step()
    assert store.bytes_held == book.bytes_held > 0, "room for a donor that is not there yet"
    two.half.reset()
    two.drain()
    arrival.set()
    step_until(two, lambda: not store.bytes_held, "what was on its way has stayed")
    assert book.bytes_held == len(two.scheduler.connector._planner) == 0
    check_faults(two)


def test_the_fleet_is_off_unless_a_store_is_named(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    assert world.half._remote is None
    assert serve(world, "a", DOCUMENT)["outcome"] == "cold_fallback"
    assert not any(commands.fetches or commands.publications for commands in world.commands)
