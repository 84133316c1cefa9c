"""Registering, forgetting and planning at once: a plan never names a forgotten donor or tokens that differ."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.waiting import PATIENCE_S, wait_until

from semblend import Decline, DeclineReason, Gates, Namespace, Planner, ReusePlan, Settings

PLANS = 1_000
TENANT = Namespace(tenant="a", model="m")
HEAD = np.random.default_rng(7).integers(0, 50, 200).astype(np.uint32)  # common to all: keeps the tries busy


def content(number: int) -> NDArray[np.uint32]:
    rng = np.random.default_rng(number)
    return np.concatenate([HEAD, rng.integers(0, 50_000, 400).astype(np.uint32)])


def test_concurrent_register_plan_forget() -> None:
    planner = Planner(settings=Settings(embedder="none"), gates=Gates(min_reuse_ratio=0.0), budget_bytes=1 << 20)
    planner.register("stays", content(0), TENANT)
    forgotten: set[str] = set()
    stop = threading.Event()
    faults: list[str] = []
    plans, stale = [0], [0]
    reused_from_moving = [0]

    def write() -> None:
        rng = np.random.default_rng(1)
        alive: list[int] = []
        number = 0
        while not stop.is_set():
            number += 1
            planner.register(f"d{number}", content(number), TENANT)
            alive.append(number)
            if len(alive) > 20:
                gone = alive.pop(int(rng.integers(len(alive))))
                planner.forget(f"d{gone}")
                forgotten.add(f"d{gone}")

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            number = int(planner.counters.registered - rng.integers(0, 30))
            recipient = np.concatenate([rng.integers(0, 50_000, 40).astype(np.uint32), content(max(number, 0))])
            gone_before = set(forgotten)
            answer = planner.plan(recipient, TENANT)
            plans[0] += 1
            if isinstance(answer, Decline):
                if answer.reason == DeclineReason.STALE:
                    stale[0] += 1
                else:
                    faults.append(f"the head is in every donor, yet {answer}")
                continue
            for run in answer.runs:
                donor = content(0 if run.donor_id == "stays" else int(run.donor_id[1:]))
                piece = donor[run.donor_start : run.donor_start + run.length]
                if not np.array_equal(piece, recipient[run.target_start : run.target_end]):
                    faults.append(f"tokens differ in {run}")
                if run.donor_id in gone_before:
                    faults.append(f"{run.donor_id} was forgotten before the plan began")
                if run.length > len(HEAD) + 1 and run.donor_id != "stays":
                    reused_from_moving[0] += 1

    threads = [threading.Thread(target=write), *(threading.Thread(target=read, args=(s,)) for s in (2, 3))]
    for thread in threads:
        thread.start()
    try:  # counted, not timed: the first plan may wait for a compiler
        wait_until(lambda: faults or (plans[0] >= PLANS and reused_from_moving[0] > 10), "too few plans")
    finally:
        stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not faults, faults[:3]
    assert stale[0] <= plans[0] / 100, "every donor of a plan left while it was planned, three times in a row"
    assert planner.memory_bytes() <= 1 << 20


def test_an_id_registered_again_is_planned_with_its_new_tokens_only() -> None:
    planner = Planner(settings=Settings(embedder="none"), gates=Gates(min_reuse_ratio=0.0), budget_bytes=1 << 20)
    for number in range(50):
        planner.register("same", content(number), TENANT)
        answer = planner.plan(content(number), TENANT)
        assert isinstance(answer, ReusePlan)
        assert answer.reused_tokens == len(content(number)) - 1
        if number:
            older = planner.plan(content(number - 1), TENANT)
            assert isinstance(older, ReusePlan)
            assert older.reused_tokens < len(HEAD) + 32
    assert len(planner) == 1


def forgetting_planner(monkeypatch: pytest.MonkeyPatch, leave: list[str]) -> Planner:
    """Four donors, and before each answer is confirmed the next of ``leave`` is forgotten."""
    planner = Planner(settings=Settings(embedder="none"), gates=Gates(min_reuse_ratio=0.0), budget_bytes=1 << 20)
    for number in range(4):
        planner.register(f"d{number}", content(number)[len(HEAD) :], TENANT)
    confirm = planner._index.confirm

    def forget_one_then_confirm(donors: list[tuple[str, int]]) -> frozenset[str]:
        if leave:
            planner.forget(leave.pop(0))
        return confirm(donors)

    monkeypatch.setattr(planner._index, "confirm", forget_one_then_confirm)
    return planner


def test_a_plan_of_several_donors_does_not_fall_when_they_are_forgotten_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompt = np.concatenate([content(number)[len(HEAD) :] for number in range(4)])
    answer = forgetting_planner(monkeypatch, ["d0", "d1", "d2"]).plan(prompt, TENANT)
    assert isinstance(answer, ReusePlan)
    assert [(run.donor_id, run.target_start, run.length) for run in answer.runs] == [("d3", 1200, 399)]


def test_a_plan_whose_donors_have_all_been_forgotten_meanwhile_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = np.concatenate([content(number)[len(HEAD) :] for number in range(3)])
    answer = forgetting_planner(monkeypatch, ["d0", "d1", "d2"]).plan(prompt, TENANT)
    assert isinstance(answer, Decline)
    assert answer.reason == DeclineReason.STALE


def test_a_lookup_does_not_wait_for_a_writer() -> None:
    planner = Planner(settings=Settings(embedder="none"), budget_bytes=1 << 20)
    planner.register("d", content(1), TENANT)
    planner.plan(content(1), TENANT)
    answers: list[ReusePlan | Decline] = []
    reader = threading.Thread(target=lambda: answers.append(planner.plan(content(1), TENANT)), daemon=True)
    with planner._index._lock:  # a writer in the middle of its work
        reader.start()
        reader.join(PATIENCE_S)
        assert answers, "it waited"
    assert isinstance(answers[0], ReusePlan)
