"""Two engines that share donors: the engine's own scheduler twice, one store, one directory, KV as traces."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.engines.vllm_inside.checks import PublicBlocks, check_donors, check_exact_cache, check_faults
from tests.engines.vllm_inside.traces import BYTES_PER_TOKEN, WIDTH, exact_traces
from tests.engines.vllm_inside.world import LOG, World, make_world
from tests.fakes.memory_directory import MemoryDirectory
from tests.waiting import wait_until

from semblend.contract import TokenRange
from semblend.contract.donor_event import Tier
from semblend.fleet.carrier.base import CarrierError
from semblend.fleet.carrier.files import FileCarrier
from semblend.fleet.directory.base import DirectoryError
from semblend.fleet.donor_object import ObjectForm, RowShape, pack
from semblend.fleet.donor_parts import NO_TOKEN
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.store_pause import FIRST_PAUSE_S, MAX_PAUSE_S
from semblend.integration.announce import Announcer
from semblend.integration.core.fleet_access import FleetAccess
from semblend.integration.vllm.commands import MAX_FETCHES, READERS, FetchCommand, Readiness
from semblend.integration.vllm.fleet_worker import FleetWorker, row_shape
from semblend.kv.donor_store import KVShape
from semblend.plan.reuse_cost import Work, pass_work

pytestmark = pytest.mark.engine

SHAPE = KVShape(1, 1, WIDTH, torch.int64)


def text(seed: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 512, tokens)]


DOCUMENT = text(1, 300)
OTHER_PROMPT = text(2, 50) + DOCUMENT + text(3, 20)
ROOM = {"blocks": 200, "host_tokens": 8192}  # for longer documents


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

    def engine(self, **options: Any) -> World:
        places: dict[str, Any] = {"fleet_directory": "memory:", "fleet_key_file": str(self._folder / "key")}
        places |= {"fleet_store": f"file://{self.store}", "fleet_wait_seconds": 600.0}
        world = make_world(self._folder / "model", **(places | options))
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


def test_an_engine_rests_while_its_requests_wait_for_a_fetch_and_only_then(
    fleet: Fleet, directory: Switch, arrival: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine(**ROOM)
    worker, commands = two.ranks[0].half._fleet, two.half.commands
    assert worker is not None
    rests, steps = [], []

    def command(loads: list[Any], output: Any) -> Any:
        made = commands(loads, output)
        steps.append((output.total_num_scheduled_tokens > 0, made.rests))
        return made

    monkeypatch.setattr(two.half, "commands", command)
    monkeypatch.setattr(worker, "rest", lambda: rests.append(len(steps)))
    two.add("b", OTHER_PROMPT, 1, capture=False)
    step_until(two, lambda: rests, "the engine never rests")
    two.add("running", text(8, 40), 5, capture=False)
    step_until(two, lambda: "running" in two.replies, "a request waits for the fetch of another")
    assert (True, False) in steps
    assert (True, True) not in steps, "it rests although there is work"
    woken = []

    def rest() -> None:
        arrival.set()
        woken.append(worker._is_done.wait(300.0))

    monkeypatch.setattr(worker, "rest", rest)
    step_until(two, lambda: "b" in two.replies, "the request was never answered")
    assert woken == [True], "the fetch ends the rest"
    assert two.replies["b"]["reused_tokens"] == 292
    count = len(steps)
    serve(two, "c", text(7, 40) + DOCUMENT + text(5, 20))
    assert not any(is_resting for _, is_resting in steps[count:]), "nothing was fetched"


class Recorded(Announcer):
    """Which tiers an engine announced its donors in."""

    def __init__(self) -> None:
        self.tiers: list[str] = []

    def loadable(self, donor_id: str, tokens: Any, tenant: str | None, lora: str | None, tier: Tier = "host") -> None:
        self.tiers.append(tier)


def test_donors_in_the_store_are_announced_as_ones_that_others_can_fetch(fleet: Fleet, directory: Switch) -> None:
    one, two, three = fleet.engine(), fleet.engine(), fleet.engine(**ROOM)
    recorded = [Recorded(), Recorded(), Recorded()]
    for world, announcer in zip((one, two, three), recorded, strict=True):
        world.half.donors.held._findable.announcer = announcer
    capture(fleet, one, directory)
    serve(two, "fetched", OTHER_PROMPT)
    serve(three, "first", text(6, 300))
    serve(three, "continued", text(6, 300) + text(7, 200))
    assert [each.tiers for each in recorded] == [["storage"], ["storage"], ["storage", "host"]]


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


def test_a_prompt_that_merely_continues_another_is_not_written(fleet: Fleet, directory: Switch) -> None:
    one = fleet.engine(**ROOM)
    serve(one, "first", DOCUMENT)
    wait_until(lambda: fleet.objects() and directory._records, "a computed prompt was never published")
    serve(one, "second", DOCUMENT + text(31, 200))
    serve(one, "third", text(32, 300))
    wait_until(lambda: len(directory._records) >= 2, "a prompt was never published")
    assert len(fleet.objects()) == len(directory._records) == 2


def poison_from_inside(world: World, file: Path, writer: bytes) -> None:
    """Wrong KV, sealed by a holder of the secret."""
    (identity, *_) = {each.identity for commands in world.commands for each in commands.publications}
    keys = SpaceKeys.derive(b"k" * 40, identity)
    kv = np.full((1, 2, 300, 1, WIDTH * 8), 7, np.uint8)
    file.chmod(0o600)
    file.write_bytes(pack(kv, keys, file.name, writer).tobytes())


def test_an_audit_finds_an_insider_and_leaves_true_donors_alone(fleet: Fleet, directory: Switch) -> None:
    known = capture(fleet, fleet.engine(), directory)
    two, three = fleet.engine(**ROOM), fleet.engine(**ROOM)
    assert serve(two, "b", OTHER_PROMPT, capture=False)["reused_tokens"] == 292
    (worst,) = [worst for report in two.reports for worst in report.audited.values()]
    assert worst == 0.0
    assert serve(two, "again", text(7, 40) + DOCUMENT + text(5, 20), capture=False)["reused_tokens"] == 292
    check_donors(two)
    document = text(40, 300)
    serve(two, "new", document)
    wait_until(lambda: len(fleet.objects()) == 2 and len(directory._records) == 2, "never published")
    (file,) = [file for file in fleet.objects() if file.name != known]
    poison_from_inside(two, file, b"i" * 16)
    serve(three, "victim", text(50, 50) + document + text(60, 20), capture=False)
    wait_until(lambda: len(fleet.objects()) == len(directory._records) == 1, "the wrong donor stays in the fleet")
    assert len(three.half.donors) == 0, "nothing of its writer is used any more"
    assert three.ranks[0].store.bytes_held == 0
    check_faults(three)


def test_an_audit_leaves_public_blocks_alone(fleet: Fleet, directory: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine did not take the claim and computed the prompt: its blocks are in the exact cache."""
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine(**ROOM)
    matched = two.half.matched_tokens

    def refused(request: Any, boundary: int) -> int | None:
        return None if matched(request, boundary) is None else 0

    monkeypatch.setattr(two.half, "matched_tokens", refused)
    public = PublicBlocks()
    public.learn(two.add("b", OTHER_PROMPT, 1, capture=False))
    step_until(two, lambda: not two.scheduler.has_requests(), "the request was never answered")
    assert any(report.fetched for report in two.reports), "the donor was there to be audited"
    two.drain()
    check_exact_cache(two, public)
    assert not any(report.audited for report in two.reports)


def test_a_part_of_a_donor_is_read_and_the_rest_is_never_served(fleet: Fleet, directory: Switch) -> None:
    document = text(21, 800)
    serve(fleet.engine(**ROOM), "first", document)
    wait_until(lambda: fleet.objects() and directory._records, "the donor was never published")
    two = fleet.engine(max_context_share=1.0, **ROOM)
    prompt = text(22, 20) + document[192:448] + text(23, 20)
    reused = serve(two, "part", prompt, capture=False)["reused_tokens"]
    assert reused > 230
    form = ObjectForm(row_shape(SHAPE), 800)
    expected = form.head_bytes + 256 * form.shape.token_bytes
    assert [done.read_bytes for report in two.reports for done in report.fetched.values()] == [expected]
    again = text(24, 20) + document[192:448] + text(25, 20)
    assert serve(two, "again", again, capture=False)["reused_tokens"] == reused
    assert sum(len(commands.fetches) for commands in two.commands) == 1, "what is here is not read again"
    other = text(26, 20) + document[512:768] + text(27, 20)
    assert serve(two, "other", other, capture=False)["reused_tokens"] > 230
    assert sum(len(commands.fetches) for commands in two.commands) == 2, "another part is read on its own"
    exact = np.array(exact_traces(document))
    for donor_id in two.half.donors.held.book.ids():
        tokens = two.scheduler.connector._planner.tokens_of(donor_id)
        here = tokens != NO_TOKEN
        rows = two.ranks[0].store.read(donor_id, 0, 800)[0, 1, :, 0, 0].numpy()
        assert here.sum() == 256
        assert (rows[here] == exact[here]).all()
    check_faults(two)
    assert not any(report.load_faults for report in two.reports)


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


def test_searches_are_counted_by_their_result(fleet: Fleet, directory: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    results = []
    monkeypatch.setattr(
        two.half._remote._metrics,
        "count",
        lambda name, label, *_: results.append(label) if name == "fleet_searches" else None,
    )
    serve(two, "a", OTHER_PROMPT)
    serve(two, "b", text(41, 300))
    directory.is_gone = True
    serve(two, "c", text(42, 300))
    serve(two, "d", text(43, 300))
    assert results == ["found", "nothing", "unreachable", "paused"]


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


def test_a_fetch_that_is_slower_than_prefill_is_refused(fleet: Fleet, directory: Switch) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    worth = two.half._remote._worth
    worth._clock = lambda: 0.0  # the store gets no second chance in this test
    two.half._cost._prices = Work(tokens=1.0)
    for _ in range(20):
        worth.was_read(1_000, 100.0)  # a throttled store
    assert serve(two, "b", OTHER_PROMPT, capture=False)["outcome"] == "cold_fallback"
    assert not any(commands.fetches for commands in two.commands)
    two.half._cost._prices = Work(tokens=1e9)
    reply = serve(two, "c", text(7, 40) + DOCUMENT + text(5, 20))
    assert reply["reused_tokens"] == 292, "where prefill is slower still, it is fetched"


def test_reads_and_prefill_are_timed(fleet: Fleet, directory: Switch) -> None:
    capture(fleet, fleet.engine(), directory)
    two = fleet.engine()
    serve(two, "b", OTHER_PROMPT)
    serve(two, "long", text(9, 400))
    worth = two.half._remote._worth
    assert worth._reads.per_second is not None
    assert two.half._cost.ms(pass_work([TokenRange(0, 100)])) > 0.0


def test_prefill_is_as_fast_as_the_forward_pass_though_the_engine_loads_after_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM starts the loads of a step that has none to wait for after its forward pass."""
    world = fleet.engine()
    now = [0.0]
    monkeypatch.setattr("semblend.integration.vllm.worker_half.time", SimpleNamespace(perf_counter=lambda: now[0]))
    half, cache = world.ranks[0].half, world.ranks[0].cache
    forward, load = cache.forward, half._carry_out

    def slow_forward(table: Any, start: int, tokens: Any) -> None:
        now[0] += len(tokens) / 100
        forward(table, start, tokens)

    def slow_load(commands: Any) -> None:
        now[0] += 7.0
        load(commands)

    monkeypatch.setattr(cache, "forward", slow_forward)
    monkeypatch.setattr(half, "_carry_out", slow_load)
    serve(world, "long", text(9, 400))
    timings = [report.timed for report in world.reports if report.timed is not None]
    assert timings
    assert all(ms == pytest.approx(10.0 * work.tokens) for work, ms in timings)


def _holds(directory: Switch, records: int) -> bool:
    return len(directory._records) == records


class Paused:
    """An engine whose clock moves by hand, over a store with several documents. Requests start alike nowhere."""

    def __init__(self, fleet: Fleet, directory: Switch, documents: int) -> None:
        one = fleet.engine(**ROOM)
        self.documents = [text(100 + number, 300) for number in range(documents)]
        for number, document in enumerate(self.documents):
            serve(one, f"first {number}", document)
            wait_until(partial(_holds, directory, number + 1), "the donor was never published")
        self.world = fleet.engine(**ROOM)
        self.remote = self.world.half._remote
        self.now = 1_000.0
        self.remote._clock = self.remote._pause._clock = lambda: self.now
        self.remote._worth.is_worth = lambda *_: True  # reads that hung here would count as slow ones
        self.wait_s: float = self.remote._wait_s
        self._asked = 0

    @property
    def commanded(self) -> int:
        return sum(len(commands.fetches) for commands in self.world.commands)

    def add(self, document: int = 0) -> str:
        self._asked += 1
        prompt = text(200 + self._asked, 50) + self.documents[document] + text(300 + self._asked, 20)
        self.world.add(str(self._asked), prompt, 1, capture=False)
        return str(self._asked)

    def reused(self, document: int = 0) -> int:
        """Of a request that waits for threads only: the clock does not move."""
        request_id = self.add(document)
        step_until(
            self.world, lambda: not self.world.scheduler.has_requests(), "the request waits for a store at fault"
        )
        return int(self.world.replies[request_id]["reused_tokens"])

    def give_up(self, document: int = 0) -> None:
        """A request asks and waits in vain until its time is over."""
        before, request_id = self.commanded, self.add(document)
        step_until(self.world, lambda: self.commanded > before, "no fetch was commanded")
        assert self.remote.waits(self.world.half._records[request_id])
        self.now += self.wait_s
        step_until(self.world, lambda: not self.world.scheduler.has_requests(), "the request waits beyond its time")
        assert self.world.replies[request_id]["outcome"] == "cold_fallback"


def test_a_store_that_cannot_be_reached_is_paused_and_probed_by_one_request(
    fleet: Fleet, directory: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, is_down, read = Paused(fleet, directory, 1), threading.Event(), FileCarrier.read

    def fail_or_read(*given: Any) -> bool:
        if is_down.is_set():
            raise CarrierError("unplugged")
        return read(*given)

    monkeypatch.setattr(FileCarrier, "read", fail_or_read)
    skipped = []
    monkeypatch.setattr(
        engine.remote._metrics,
        "count",
        lambda name, label, *_: skipped.append(label) if (name, label) == ("fleet_fetches", "paused") else None,
    )
    is_down.set()
    assert (engine.reused(), engine.commanded) == (0, 1)
    assert (engine.reused(), engine.commanded) == (0, 1), "the store is left alone"
    assert len(skipped) == 1
    engine.now += FIRST_PAUSE_S
    assert (engine.reused(), engine.commanded) == (0, 2), "one probe"
    engine.now += FIRST_PAUSE_S
    assert (engine.reused(), engine.commanded) == (0, 2), "the pause has doubled"
    assert len(skipped) == 2
    is_down.clear()
    engine.now += FIRST_PAUSE_S
    assert (engine.reused(), engine.commanded) == (292, 3)
    assert not engine.remote._pause.is_on
    check_faults(engine.world)


def test_a_donor_that_is_missing_does_not_pause_the_store(fleet: Fleet, directory: Switch) -> None:
    engine = Paused(fleet, directory, 2)
    (space_and_id, _) = directory._records  # in the order of their announcements
    (missing,) = [file for file in fleet.objects() if file.name in space_and_id]
    missing.unlink()
    assert (engine.reused(0), engine.commanded) == (0, 1)
    assert (engine.reused(1), engine.commanded) == (292, 2)


def test_a_read_that_hangs_is_waited_for_by_one_request_only(
    fleet: Fleet, directory: Switch, arrival: threading.Event
) -> None:
    engine = Paused(fleet, directory, 3)
    engine.give_up(0)
    for document in (0, 1):
        assert (engine.reused(document), engine.commanded) == (0, 1), "the store is left alone"
    engine.now += FIRST_PAUSE_S
    assert (engine.reused(0), engine.commanded) == (0, 1), "its fetch hangs and is not waited for"
    engine.give_up(1)
    assert (len(engine.remote._fetches), READERS) == (2, 2)
    engine.now += MAX_PAUSE_S
    assert (engine.reused(2), engine.commanded) == (0, 2), "no reader is left that could probe"
    arrival.set()
    step_until(engine.world, lambda: not engine.remote._fetches, "the bytes never arrived")
    assert not engine.remote._pause.is_on
    assert [engine.reused(document) for document in (0, 1, 2)] == [292] * 3, "what was late, and a new fetch"
    assert engine.commanded == 3
    check_faults(engine.world)


def test_a_worker_whose_reads_hang_takes_a_bounded_number_of_fetches(
    fleet: Fleet, directory: Switch, arrival: threading.Event
) -> None:
    """Also when the scheduler has forgotten them, as a reset does."""
    rank = fleet.engine().ranks[0]
    worker = rank.half._fleet
    assert worker is not None
    for number in range(MAX_FETCHES + 1):
        worker.fetch(FetchCommand(f"donor {number}", f"{number:032x}", "space", 16))
    assert worker._is_done.is_set(), "a refusal ends the rest of a step"
    (refused,) = worker.take_fetched().items()
    assert (refused[0], refused[1].outcome) == (f"donor {MAX_FETCHES}", "busy")
    arrival.set()
    done: dict[str, Any] = {}
    wait_until(lambda: done.update(worker.take_fetched()) or len(done) == MAX_FETCHES, "reads never ended")
    assert rank.store.bytes_held == 0
    worker.fetch(FetchCommand("next", "ab" * 16, "space", 16))
    wait_until(lambda: worker.take_fetched(), "there is room again")


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
