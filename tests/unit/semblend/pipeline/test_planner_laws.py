"""The planner's laws, against a brute-force oracle: nothing missed, nothing wrong, nothing left of the forgotten."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from semblend import Decline, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.fingerprint.anchors import GUARANTEE
from semblend.search.layout import STATE_MAP_HIGH, STATE_TABLE_PLACES

Tokens = NDArray[np.uint32]
TENANT = Namespace(tenant="a", model="m")
OTHER = Namespace(tenant="b", model="m")
WIDE_OPEN = Gates(min_reuse_ratio=0.0)
SEEDED = st.integers(0, 2**32 - 1).map(random.Random)  # prompts need more randomness than hypothesis hands out


def quiet_planner(gates: Gates = WIDE_OPEN, budget_bytes: int = 32 << 20, **switches: Any) -> Planner:
    return Planner(settings=Settings(embedder="none", **switches), gates=gates, budget_bytes=budget_bytes)


def reusable_positions(donors: Iterable[Tokens], recipient: Tokens, floor: int) -> NDArray[np.bool_]:
    """Brute force: every position inside a window of GUARANTEE tokens that some donor also has, at any offset."""
    size = 4 * GUARANTEE
    windows = {donor.tobytes()[i : i + size] for donor in donors for i in range(0, 4 * len(donor) - size + 1, 4)}
    covered = np.zeros(len(recipient), bool)
    for i in range(len(recipient) - GUARANTEE + 1):
        if recipient.tobytes()[4 * i : 4 * i + size] in windows:
            covered[i : i + GUARANTEE] = True
    covered[:floor] = False
    covered[-1] = False  # left to the engine
    return covered


def planned_positions(answer: ReusePlan | Decline, donors: dict[str, Tokens], recipient: Tokens) -> NDArray[np.bool_]:
    planned = np.zeros(len(recipient), bool)
    if isinstance(answer, Decline):
        return planned
    assert not answer.truncated
    for run in answer.runs:
        donor = donors[run.donor_id][run.donor_start : run.donor_start + run.length]
        assert np.array_equal(donor, recipient[run.target_start : run.target_end])
        assert not planned[run.target_start : run.target_end].any()
        planned[run.target_start : run.target_end] = True
    return planned


class Library:
    """Prompts made of shared passages, some periodic, cut and mixed: what makes alignment hard."""

    def __init__(self, rng: random.Random, vocabulary: int) -> None:
        self.rng = rng
        self.vocabulary = vocabulary
        self.passages = [self.noise(rng.randint(1, 300)) for _ in range(rng.randint(1, 7))]
        for _ in range(rng.randint(0, 2)):
            period = self.noise(rng.randint(1, 40))
            self.passages.append(np.tile(period, rng.randint(1, 12))[:400])

    def noise(self, length: int) -> Tokens:
        return np.array([self.rng.randrange(self.vocabulary) for _ in range(length)], np.uint32)

    def prompt(self) -> Tokens:
        parts = []
        for _ in range(self.rng.randint(1, 4)):
            passage = self.rng.choice(self.passages)
            kind = self.rng.random()
            if kind < 0.6:
                parts.append(passage)
            elif kind < 0.8:
                start = self.rng.randrange(len(passage))
                parts.append(passage[start : start + self.rng.randint(1, len(passage))])
            else:
                parts.append(self.noise(self.rng.randint(1, 60)))
        return np.concatenate(parts)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rng=SEEDED,
    vocabulary=st.sampled_from([1, 2, 3, 5, 50, 50_000]),
    donor_count=st.integers(1, 50),
)
def test_every_equal_run_is_planned_and_every_planned_token_is_equal(
    rng: random.Random, vocabulary: int, donor_count: int
) -> None:
    library = Library(rng, vocabulary)
    planner = quiet_planner()
    donors: dict[str, Tokens] = {}
    for i in range(donor_count):
        donors[f"d{i}"] = library.prompt()
        planner.register(f"d{i}", donors[f"d{i}"], TENANT)
        if rng.random() < 0.2:
            planner.register(f"other{i}", library.prompt(), OTHER)
        if rng.random() < 0.25:
            gone = rng.choice(sorted(donors))
            assert planner.forget(gone)
            del donors[gone]
    for _ in range(3):
        recipient = library.prompt()
        if len(recipient) < GUARANTEE:
            continue
        floor = rng.randrange(len(recipient)) if rng.random() < 0.4 else 0
        answer = planner.plan(recipient, TENANT, exact_prefix_tokens=floor)
        planned = planned_positions(answer, donors, recipient)
        missed = reusable_positions(donors.values(), recipient, floor) & ~planned
        assert not missed.any(), f"missed {np.flatnonzero(missed)[:5]} of {len(recipient)}, floor {floor}"
        assert not planned[:floor].any()
        if isinstance(answer, ReusePlan):
            assert_partition(answer)


def assert_partition(plan: ReusePlan) -> None:
    counts = np.zeros(plan.prompt_tokens, int)
    for run in plan.runs:
        counts[run.target_start : run.target_end] += 1
    for hole in plan.compute:
        counts[hole.start : hole.end] += 1
    claimed = np.zeros(plan.prompt_tokens, int)
    for claim in plan.claimed:
        claimed[claim.start : claim.end] += 1
    assert np.array_equal(counts, claimed)
    assert plan.claim_end < plan.prompt_tokens


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), copies=st.integers(9, 60), tail=st.integers(1, 40))
def test_boilerplate_in_every_donor_hides_no_continuation(seed: int, copies: int, tail: int) -> None:
    """More donors than any chain holds share a head; the recipient continues for a few tokens like one of them."""
    rng = np.random.default_rng(seed)
    head = rng.integers(0, 5, 200).astype(np.uint32)
    planner = quiet_planner()
    donors = {f"d{i}": np.concatenate([head, rng.integers(0, 5, 150).astype(np.uint32)]) for i in range(copies)}
    for name, tokens in donors.items():
        planner.register(name, tokens, TENANT)
    chosen = donors[f"d{rng.integers(copies)}"]
    recipient = np.concatenate([rng.integers(5, 9, 30), chosen[: 200 + tail], rng.integers(9, 12, 90)]).astype(
        np.uint32
    )
    planned = planned_positions(planner.plan(recipient, TENANT), donors, recipient)
    assert planned[30 : 230 + tail].all()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=SEEDED, vocabulary=st.sampled_from([2, 50_000]))
def test_the_byte_budget_holds_after_every_call(rng: random.Random, vocabulary: int) -> None:
    budget = 1 << 18
    library = Library(rng, vocabulary)
    planner = quiet_planner(budget_bytes=budget)
    donors: dict[str, Tokens] = {}
    for i in range(120):
        name = f"d{rng.randrange(60)}"
        donors[name] = library.prompt()
        planner.register(name, donors[name], TENANT if i % 3 else OTHER)
        assert name in planner
        assert planner.memory_bytes() <= budget
    for name in donors:
        planner.forget(name)
        assert planner.memory_bytes() <= budget
    assert len(planner) == 0
    assert isinstance(planner.plan(library.noise(300), TENANT), Decline)


def test_forgetting_everything_gives_the_memory_back() -> None:
    planner = quiet_planner()
    rng = np.random.default_rng(0)
    head = rng.integers(0, 9, 300).astype(np.uint32)
    for _ in range(5):
        for i in range(200):
            planner.register(f"d{i}", np.concatenate([head, rng.integers(0, 9, 300).astype(np.uint32)]), TENANT)
        full = planner.memory_bytes()
        for i in range(200):
            planner.forget(f"d{i}")
    assert planner.memory_bytes() < 0.35 * full  # the table stays at the size it grew to
    state = planner._index._store.state
    assert planner.memory_bytes() == 8 * state[STATE_TABLE_PLACES] + 4 * state[STATE_MAP_HIGH]


def test_a_donor_in_use_outlives_newer_unused_ones() -> None:
    rng = np.random.default_rng(1)
    planner = quiet_planner(budget_bytes=1 << 20)
    favourite = rng.integers(0, 50_000, 2048).astype(np.uint32)
    planner.register("favourite", favourite, TENANT)
    for i in range(300):
        planner.register(f"d{i}", rng.integers(0, 50_000, 2048).astype(np.uint32), TENANT)
        assert isinstance(planner.plan(favourite, TENANT), ReusePlan)
    assert planner.counters.evicted > 200
    assert "favourite" in planner
    assert "d0" not in planner


@pytest.mark.parametrize("tenant", [None, "b", 0, "", "None"])
def test_equal_text_of_another_tenant_is_never_planned(tenant: str | int | None) -> None:
    tokens = np.arange(1000, dtype=np.uint32)
    planner = quiet_planner()
    planner.register("d", tokens, Namespace(tenant="a", model="m"))
    assert isinstance(planner.plan(tokens, Namespace(tenant="a", model="m")), ReusePlan)
    assert isinstance(planner.plan(tokens, Namespace(tenant=tenant, model="m")), Decline)
    planner.register("e", tokens, Namespace(tenant=tenant, model="m"))
    answer = planner.plan(tokens, Namespace(tenant=tenant, model="m"))
    assert isinstance(answer, ReusePlan)
    assert answer.donor_ids == ("e",)


def test_a_lookup_that_meets_its_work_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = quiet_planner()
    tokens = np.random.default_rng(2).integers(0, 50_000, 4000).astype(np.uint32)
    for i in range(8):
        planner.register(f"d{i}", tokens[i * 500 : i * 500 + 500], TENANT)
    complete = planner.plan(tokens, TENANT)
    assert isinstance(complete, ReusePlan)
    assert not complete.truncated
    monkeypatch.setattr("semblend.search.anchor_index.WORK_PER_LOOKUP", 1000)
    monkeypatch.setattr("semblend.search.anchor_index.WORK_PER_TOKEN", 0)
    partial = planner.plan(tokens, TENANT)
    assert isinstance(partial, ReusePlan)
    assert partial.truncated
    assert 0 < partial.reused_tokens < complete.reused_tokens
