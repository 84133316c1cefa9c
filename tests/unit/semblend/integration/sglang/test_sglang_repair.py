"""Repairs on SGLang against a tree of tokens: slices continue what the tree holds, and jobs come to an end."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import UNKNOWN, Event, FaultContained, Namespace
from semblend.integration.border import Border
from semblend.integration.core.repair_schedule import MAX_JOBS, STEP_TOKENS
from semblend.integration.sglang.repair import Extended, RepairJob, Repairs

PAGE = 16
KNOWN = Namespace(tenant="a", model="m")


class Tree:
    """What the tree holds of one prompt, as a number of tokens, and how many slots are free."""

    def __init__(self, held: int = 0, free: int = 10_000) -> None:
        self.held, self.free = held, free
        self.fails = False
        self.slices: list[tuple[int, int]] = []
        self.events: list[Event] = []
        self.repaired: list[RepairJob] = []
        self.repairs = Repairs(
            "idle",
            PAGE,
            Border(self.events.append, logging.getLogger("test")),
            lambda tokens, _: self.slices.append((self.held - tokens, self.held)),
            self.repaired.append,
        )

    def extend(self, job: RepairJob, max_tokens: int) -> Extended:
        if self.fails:
            raise RuntimeError("planted")
        start, end = self.held, min(self.held + max_tokens, len(job.tokens))
        if end <= start or end - start > self.free:
            return Extended(start, start)
        self.held, self.free = end, self.free - (end - start)
        return Extended(start, end)

    def step(self, *, idle: bool = True) -> None:
        self.repairs.step(self.extend, idle=idle)


def job(tokens: int, reached: int = 0, **more: Any) -> RepairJob:
    given: dict[str, Any] = {"rid": "r", "prompt_tokens": tokens, "namespace": KNOWN, "is_donor": True}
    given |= {"extra_key": None, "cache_salt": None, "tokens": np.arange(tokens, dtype=np.uint32)}
    return RepairJob(reached=reached, **(given | more))


@given(st.integers(1, 1200), st.integers(0, 1200))
def test_slices_continue_what_the_tree_holds_to_the_last_whole_page(tokens: int, held: int) -> None:
    held = min(held, tokens) // PAGE * PAGE
    tree = Tree(held)
    tree.repairs.add(job(tokens, held), "stop")
    for _ in range(100):
        tree.step()
    assert len(tree.repairs) == 0
    whole = tokens // PAGE * PAGE
    assert [start for start, _ in tree.slices] == list(range(held, whole, STEP_TOKENS))
    assert all(end - start <= STEP_TOKENS for start, end in tree.slices)
    assert tree.held == whole
    assert len(tree.repaired) == (whole > held)


def test_a_request_in_the_meantime_may_have_computed_it() -> None:
    tree = Tree(32)
    tree.repairs.add(job(320, 32), "stop")
    tree.held = 320
    tree.step()
    assert (tree.slices, len(tree.repaired), len(tree.repairs)) == ([], 1, 0)


def test_a_slice_that_fails_ends_its_job_and_no_other() -> None:
    tree = Tree()
    tree.repairs.add(job(320, rid="first"), "stop")
    tree.repairs.add(job(320, rid="second", namespace=Namespace(tenant="b", model="m")), "stop")
    tree.fails = True
    tree.step()
    assert [event.request_id for event in tree.events if isinstance(event, FaultContained)] == ["second"]
    tree.fails = False
    for _ in range(5):
        tree.step()
    assert [repaired.rid for repaired in tree.repaired] == ["first"]


def test_the_newest_answer_is_repaired_first() -> None:
    """Its session is the likeliest to return soon; the older repair continues afterwards."""
    tree = Tree()
    begun: list[str] = []

    def extend(job: RepairJob, max_tokens: int) -> Extended:
        begun.append(job.rid)
        return Extended(job.reached, min(job.reached + max_tokens, len(job.tokens)))

    tree.repairs.add(job(3 * STEP_TOKENS, rid="older"), "stop")
    tree.repairs.step(extend, idle=True)
    tree.repairs.add(job(2 * STEP_TOKENS, rid="newer", namespace=Namespace(tenant="b", model="m")), "stop")
    for _ in range(4):
        tree.repairs.step(extend, idle=True)
    assert begun == ["older", "newer", "newer", "older", "older"]
    assert [repaired.rid for repaired in tree.repaired] == ["newer", "older"]


def test_without_free_slots_every_repair_ends() -> None:
    tree = Tree(free=STEP_TOKENS)
    for tenant in "ab":
        tree.repairs.add(job(640, namespace=Namespace(tenant=tenant, model="m")), "stop")
    tree.step()
    tree.step()
    assert len(tree.repairs) == 0
    assert tree.held == STEP_TOKENS, "what was inserted stays"


def test_what_the_engine_evicts_is_not_computed_again() -> None:
    tree = Tree(64)
    tree.repairs.add(job(640, 64), "stop")
    tree.step()
    tree.held = 32
    tree.step()
    assert len(tree.repairs) == 0
    assert not tree.repaired


def test_a_later_turn_replaces_the_earlier_one_of_its_tenant() -> None:
    tree = Tree()
    tree.repairs.add(job(320), "stop")
    tree.repairs.add(job(320, namespace=Namespace(tenant="b", model="m")), "stop")
    tree.repairs.add(job(640), "stop")
    assert len(tree.repairs) == 2


def test_unknown_tenants_and_short_rests_are_refused_and_the_oldest_job_makes_room() -> None:
    tree = Tree()
    tree.repairs.add(job(320, namespace=Namespace(tenant=UNKNOWN, model="m")), "stop")
    tree.repairs.add(job(330, 320), "stop")
    assert len(tree.repairs) == 0
    for number in range(MAX_JOBS + 5):
        tree.repairs.add(job(320, namespace=Namespace(tenant=str(number), model="m")), "stop")
    assert len(tree.repairs) == MAX_JOBS
    tree.held = 320
    for _ in range(MAX_JOBS):
        tree.step()
    assert {repaired.namespace.tenant for repaired in tree.repaired} == {str(n) for n in range(5, MAX_JOBS + 5)}


def test_a_flush_during_a_slice_leaves_nothing() -> None:
    tree = Tree()
    tree.repairs.add(job(320), "stop")

    def flushing(_: RepairJob, __: int) -> Extended:
        tree.repairs.clear()
        return Extended(0, 128)

    tree.repairs.step(flushing, idle=True)
    assert (len(tree.repairs), tree.slices, tree.repaired) == (0, [], [])


def test_idle_does_nothing_in_busy_steps() -> None:
    tree = Tree()
    tree.repairs.add(job(320), "stop")
    for _ in range(1000):
        tree.step(idle=False)
    assert not tree.slices
