"""What the leader makes of the engine's reports: pages that are none, offers served in part, replays, decoding."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semblend.integration.trtllm.stub_engine import (
    BLOCK,
    StubOutput,
    StubRequest,
    StubRequestData,
    arguments,
)

from semblend.contract import Declined, DonorEvicted, Event, FaultContained, Materialized, Namespace
from semblend.integration.hints import Hints
from semblend.integration.trtllm.commands import StepCommands
from semblend.integration.trtllm.leader import Leader
from semblend.integration.trtllm.link import Loaded, Saved, link_of
from semblend.integration.trtllm.options import TrtllmOptions
from semblend.integration.trtllm.plan_kinds import LoadPlan, PlanKind, Publication
from semblend.integration.trtllm.record import TrtllmRequest
from semblend.integration.trtllm.start import make_leader

VERSION = "1.2.1"
DOCUMENT = [int(token) for token in np.random.default_rng(1).integers(0, 50_000, 640)]
TAIL = [int(token) for token in np.random.default_rng(2).integers(0, 50_000, 200)]
PROMPT = DOCUMENT + TAIL
BLOCKS = len(PROMPT) // BLOCK
NAMESPACE = Namespace("t", "m", None, "k", "d", "l", BLOCK, "r", None, "p")


class LeaderBench:
    """A leader whose worker has a cache of 200 pages and obeys every command."""

    def __init__(self, folder: Path) -> None:
        self.events: list[Event] = []
        self.arguments = arguments(folder / "model")
        options = TrtllmOptions(materialization="exact_prefix", validated_version=VERSION)
        self.leader: Leader = make_leader(self.arguments, options, self.events.append, VERSION)
        self.link = link_of(self.arguments)
        self.link.fault, self.link.page_bytes, self.link.page_count = "", 128, 200

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ask(self, number: int, tokens: list[int], pages: list[int]) -> StubRequest:
        request = StubRequest(number, tokens)
        self.offered = self.leader.matched_tokens(request, 0)
        self.leader.allocated(request, pages)
        return request

    def report(self, number: int, pages: list[int], position: int, scheduled: int, *, is_new: bool) -> StepCommands:
        data = StubRequestData(number, [], pages, position, scheduled)
        commands = self.leader.commands(StubOutput([data], []) if is_new else StubOutput([], [data]))
        for load in commands.loads:
            self.link.report(Loaded(load.request_id, 1.0))
        for save in commands.saves:
            self.link.report(Saved(save.donor_id))
        return commands

    def add_donor(self) -> None:
        request = self.ask(1, DOCUMENT, list(range(40)))
        assert self.report(1, list(range(40)), 0, len(DOCUMENT), is_new=True).saves
        self.leader.finished(request)
        self.events.clear()


@pytest.fixture
def bench(tmp_path: Path) -> LeaderBench:
    return LeaderBench(tmp_path)


@pytest.mark.parametrize("hole", [-1, 200])
def test_nothing_is_loaded_from_a_block_without_a_page_on_and_it_is_reported(bench: LeaderBench, hole: int) -> None:
    bench.add_donor()
    pages = list(range(100, 100 + BLOCKS + 1))
    pages[3] = hole
    bench.ask(2, PROMPT, pages)
    assert bench.offered == len(DOCUMENT)
    (load,) = bench.report(2, pages, 0, 300, is_new=True).loads
    assert load.block_ids == (100, 101, 102)
    (fault,) = bench.of(FaultContained)
    assert (fault.stage, fault.request_id) == ("load", "2")
    assert f"page {hole}" in fault.error


def test_an_offer_without_a_single_page_declines(bench: LeaderBench) -> None:
    bench.add_donor()
    request = bench.ask(2, PROMPT, [-1] * BLOCKS)
    assert not bench.report(2, [-1] * BLOCKS, 0, len(PROMPT), is_new=True).loads
    bench.leader.finished(request)
    assert [event.reason for event in bench.of(Declined)] == ["capacity"]
    assert not bench.of(Materialized)


@pytest.mark.parametrize("hole", [-1, 200])
def test_a_prompt_with_a_block_without_a_page_is_not_saved(bench: LeaderBench, hole: int) -> None:
    pages = [hole, *range(39)]
    bench.ask(1, DOCUMENT, pages)
    assert not bench.report(1, pages, 0, len(DOCUMENT), is_new=True).saves
    assert [fault.stage for fault in bench.of(FaultContained)] == ["save"]


def test_decoding_saves_nothing(bench: LeaderBench) -> None:
    """The prefill ended without its last page; what decoding reports is not the end of a prefill."""
    bench.ask(1, DOCUMENT, list(range(39)))
    assert not bench.report(1, list(range(39)), 0, len(DOCUMENT), is_new=True).saves
    assert not bench.report(1, [39], len(DOCUMENT), 1, is_new=False).saves


@pytest.mark.parametrize("delta", [[], [7, 8]])
def test_a_replay_is_saved_from_the_pages_it_was_given_last(bench: LeaderBench, delta: list[int]) -> None:
    bench.ask(1, DOCUMENT, list(range(40)))
    bench.report(1, list(range(40)), 0, 320, is_new=True)
    again = list(range(50, 90))
    bench.ask(1, DOCUMENT, again)
    (save,) = bench.report(1, delta, 0, len(DOCUMENT), is_new=False).saves
    assert save.block_ids == tuple(again)


def test_a_replay_in_chunks_whose_pages_are_counted_from_an_old_list_is_not_saved(bench: LeaderBench) -> None:
    bench.ask(1, DOCUMENT, list(range(40)))
    bench.report(1, list(range(40)), 0, 320, is_new=True)
    bench.ask(1, DOCUMENT, list(range(50, 70)))
    bench.report(1, [], 0, 320, is_new=False)
    assert not bench.report(1, list(range(90, 130)), 320, 320, is_new=False).saves


def test_pages_of_later_chunks_are_appended(bench: LeaderBench) -> None:
    bench.ask(1, DOCUMENT, list(range(20)))
    assert not bench.report(1, list(range(20)), 0, 320, is_new=True).saves
    (save,) = bench.report(1, list(range(60, 80)), 320, 320, is_new=False).saves
    assert save.block_ids == (*range(20), *range(60, 80))


@pytest.mark.parametrize(("served", "counted"), [(640, [640]), (320, [320]), (0, [])])
def test_only_what_the_engine_shows_as_served_counts(bench: LeaderBench, served: int, counted: list[int]) -> None:
    bench.add_donor()
    pages = list(range(100, 100 + BLOCKS + 1))
    request = bench.ask(2, PROMPT, pages)
    bench.report(2, pages, 0, 64, is_new=True)
    bench.leader.matched_tokens(StubRequest(3, TAIL), 0)  # the leader hears that the pages were loaded
    assert not bench.of(Materialized), "the first report says nothing about what was served"
    bench.report(2, [], served + 64, 64, is_new=False)
    bench.leader.finished(request)
    assert [event.reused_tokens for event in bench.of(Materialized)] == counted
    assert len(bench.of(Declined)) == (not counted)


@pytest.mark.parametrize(("generated", "counted"), [([5], [640]), ([], [])])
def test_a_request_of_one_step_counts_if_it_generated_and_stays_unknown_if_not(
    bench: LeaderBench, generated: list[int], counted: list[int]
) -> None:
    bench.add_donor()
    pages = list(range(100, 100 + BLOCKS + 1))
    request = bench.ask(2, PROMPT, pages)
    bench.report(2, pages, 0, len(PROMPT) - 640, is_new=True)
    request.generated += generated
    bench.leader.finished(request)
    assert [event.reused_tokens for event in bench.of(Materialized)] == counted


def test_a_prefill_that_only_seemed_to_end_leaves_no_donor(bench: LeaderBench) -> None:
    """A part of the offer was served, and the step was by chance as long as the rest of a whole offer."""
    bench.add_donor()
    pages = list(range(100, 100 + BLOCKS + 1))
    bench.ask(2, PROMPT, pages)
    assert bench.report(2, pages, 0, len(PROMPT) - 640, is_new=True).saves
    bench.report(2, [], 320 + len(PROMPT) - 640, 320, is_new=False)
    assert [event.reason for event in bench.of(DonorEvicted)] == ["incomplete"]


def test_a_step_looks_at_its_own_requests_only(bench: LeaderBench) -> None:
    class Counting(OrderedDict[int, TrtllmRequest]):
        def values(self) -> Any:
            raise AssertionError("all records were looked at")

        items = values

    bench.ask(1, DOCUMENT, list(range(40)))
    bench.leader._records._records = Counting(bench.leader._records._records)
    assert bench.report(1, list(range(40)), 0, len(DOCUMENT), is_new=True).saves


def test_the_pages_of_a_promise_wait_for_its_order(bench: LeaderBench) -> None:
    bench.add_donor()
    request = StubRequest(2, PROMPT)
    assert bench.leader.matched_tokens(request, 0)
    (donor_id,) = bench.leader.donors.ids()
    bench.leader.donors.drop(donor_id, "capacity")
    assert not bench.leader.commands(StubOutput()).drops
    bench.leader.allocated(request, list(range(100, 100 + BLOCKS + 1)))
    commands = bench.leader.commands(StubOutput())
    assert (commands.drops, len(commands.loads)) == ((donor_id,), 1)


@pytest.mark.parametrize("is_replayed", [True, False])
def test_an_order_whose_request_lost_its_pages_never_goes_out(bench: LeaderBench, is_replayed: bool) -> None:
    bench.add_donor()
    request = bench.ask(2, PROMPT, list(range(100, 100 + BLOCKS + 1)))
    again = list(range(40, 40 + BLOCKS + 1))
    if is_replayed:
        bench.ask(2, PROMPT, again)
    else:
        bench.leader.finished(request)  # cancelled before its first step
    loads = bench.leader.commands(StubOutput()).loads
    assert [load.block_ids for load in loads] == ([tuple(again[:40])] if is_replayed else [])


def test_a_prompt_with_more_served_than_loaded_is_a_fault_and_no_donor(bench: LeaderBench) -> None:
    bench.add_donor()
    pages = list(range(100, 100 + BLOCKS + 1))
    bench.ask(2, PROMPT, [*pages[:3], -1, *pages[4:]])
    bench.report(2, pages, 0, 64, is_new=True)
    assert not bench.report(2, [], 640 + 64, len(PROMPT) - 704, is_new=False).saves
    assert "640 tokens were served and 48 loaded" in bench.of(FaultContained)[-1].error
    assert [event.reused_tokens for event in bench.of(Materialized)] == [48]


@given(
    boundary=st.integers(0, 5),
    offered=st.integers(1, 10),
    share=st.integers(0, 10),
    rest=st.integers(1, 60),
    chunk=st.integers(1, 80),
    subtracts_served=st.booleans(),
    is_ahead=st.booleans(),
)
def test_what_is_served_is_known_by_the_second_report(
    boundary: int, offered: int, share: int, rest: int, chunk: int, subtracts_served: bool, is_ahead: bool
) -> None:
    """Both ways engines report: the first step without what was offered, or without what was served of it."""
    boundary, offered, served = boundary * BLOCK, offered * BLOCK, min(share, offered) * BLOCK
    length = boundary + offered + rest
    load = LoadPlan(PlanKind.EXACT_PREFIX, Publication.EXACT_CACHE, "d", boundary, offered)
    record = TrtllmRequest(
        "1", np.zeros(length, np.uint32), NAMESPACE, Hints(), block_tokens=BLOCK, load=load, loaded_tokens=offered
    )
    position, ends = boundary + served, []
    for number in itertools.count():
        left = served if subtracts_served else offered
        step = min(chunk, length - position)
        data: Any = SimpleNamespace(
            new_block_ids=[], computed_position=position - (0 if number else left), num_scheduled_tokens=step
        )
        ends.append(record.reported(data, is_new=number == 0))
        position += step
        if position == length:
            break
    decoding: Any = SimpleNamespace(new_block_ids=[], computed_position=length - is_ahead, num_scheduled_tokens=1)
    record.reported(decoding, is_new=False)
    assert record.served_tokens == served
    assert sum(ends[1:]) <= 1
    assert not any(ends[1:-1])
