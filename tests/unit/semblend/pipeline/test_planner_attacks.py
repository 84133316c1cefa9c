"""Attacks that once worked, kept as regression tests."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.waiting import PATIENCE_S

from sembase import winnowing
from sembase.errors import ContractError
from semblend import Decline, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.fingerprint import anchors
from semblend.search.anchor_index import FoundRuns
from semblend.search.layout import STATE_MAP_HIGH, STATE_NODE_HIGH

NS = Namespace(tenant="a", model="m")
OPEN = Gates(min_reuse_ratio=0.0)


def planner(budget_bytes: int = 1 << 22, **more: Any) -> Planner:
    return Planner(settings=Settings(embedder="none"), gates=OPEN, budget_bytes=budget_bytes, **more)


def noise(seed: int, length: int) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 50_000, length).astype(np.uint32)


def test_lengths_that_drift_do_not_outgrow_the_page_map() -> None:
    built = planner(1 << 20)
    number = 0
    for mean in (200, 700, 2700, 10_000, 25_000):
        for _ in range((2 << 20) // (mean * 6)):
            number += 1
            built.register(f"d{number}", noise(number, mean), NS)
            assert built.memory_bytes() <= 1 << 20
    store = built._index._store
    assert store.state[STATE_MAP_HIGH] > 2 * (1 << 10)  # more than the first layout had room for
    assert store.state[STATE_MAP_HIGH] < len(store.page_map)
    assert isinstance(built.plan(noise(number, 25_000), NS), ReusePlan)


def crafted_passage(seed: int) -> NDArray[np.uint32]:
    """64 tokens chosen so that the gram hash keeps falling: every gram becomes an anchor."""
    rng = np.random.default_rng(seed)
    modulus = 1 << 64
    tokens = np.arange(1, 20_000, dtype=np.uint64)
    mixed = (tokens + np.uint64(1)) * winnowing._TOKEN_MIX
    mixed ^= mixed >> np.uint64(32)
    chosen = rng.integers(0, len(tokens), 31).tolist()
    value = 0
    for index in chosen:
        value = (value * int(winnowing._BASE) + int(mixed[index])) % modulus
    below = np.uint64(modulus // 60)
    while len(chosen) < 64:
        shifted = (value * int(winnowing._BASE)) % modulus
        if len(chosen) >= 32:
            shifted = (shifted - int(mixed[chosen[-32]]) * pow(int(winnowing._BASE), anchors.GRAM, modulus)) % modulus
        order = (np.uint64(shifted) + mixed) * winnowing._ORDER_MIX
        order ^= order >> np.uint64(32)
        best = int(np.argmax(np.where(order < below, order, np.uint64(0))))
        below = order[best]
        value = (shifted + int(mixed[best])) % modulus
        chosen.append(best)
    return (np.array(chosen) + 1).astype(np.uint32)


def test_text_made_of_anchors_stays_inside_the_budget() -> None:
    passages = [crafted_passage(seed) for seed in range(60)]
    built = planner(1 << 19)
    for i in range(12):
        built.register(f"d{i}", np.concatenate([np.append(p, np.uint32(40_000 + i)) for p in passages]), NS)
        assert built.memory_bytes() <= 1 << 19
    store = built._index._store
    assert store.state[STATE_NODE_HIGH] < len(store.nodes)


def test_grams_with_one_tag_do_not_hide_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every tag equal, all donors of all grams and tenants meet in one probe sequence."""
    from semblend.search import anchor_index

    monkeypatch.setattr(anchor_index, "gram_tags", lambda hashes, _: np.full(len(hashes), 2, np.int64))
    built = planner()
    donors = {f"d{i}": noise(i, 150) for i in range(30)}
    for name, tokens in donors.items():
        built.register(name, tokens, NS)
        built.register("other-" + name, tokens, Namespace(tenant="b", model="m"))
    for name, tokens in donors.items():
        answer = built.plan(np.concatenate([noise(99, 20), tokens, noise(98, 20)]), NS)
        assert isinstance(answer, ReusePlan)
        assert (answer.donor_ids, answer.reused_tokens) == ((name,), 150)
    for name in donors:
        assert built.forget(name)
        assert built.forget("other-" + name)
    assert len(built) == 0


def test_a_buffer_written_to_after_the_call_changes_nothing() -> None:
    built = planner()
    buffer = noise(1, 2000)
    original = buffer.copy()
    index = built._index
    fingerprint = index._fingerprint

    def overwrite(tokens: NDArray[np.uint32]) -> Any:
        result = fingerprint(tokens)
        buffer[:] = 7
        return result

    index._fingerprint = overwrite
    built.register("d", buffer, NS)
    answer = built.plan(original, NS)
    assert isinstance(answer, ReusePlan)
    assert answer.reused_tokens == 1999
    assert built.forget("d")
    assert isinstance(built.plan(original, NS), Decline)


def test_a_donor_that_changes_tenant_is_not_shown_to_the_old_one() -> None:
    pytest.importorskip("usearch", reason="the semantic path needs the extra 'embedder'")
    other = Namespace(tenant="b", model="m")
    settings = Settings(embedder="jaccard", min_similarity=0.0)
    with Planner(settings=settings, gates=OPEN, budget_bytes=1 << 22, semantic_wait_s=PATIENCE_S) as built:
        text = " ".join(f"word{i}" for i in range(300))
        built.register("d", noise(1, 300), NS, text=text)
        assert built.drain(PATIENCE_S)
        built.register("d", noise(2, 300), other)
        answer = built.plan(noise(3, 300), NS, text=text)
        assert isinstance(answer, Decline)
        assert answer.discoveries == ()


def test_a_forked_child_does_not_wait_for_the_parents_readers() -> None:
    built = planner(1 << 18)
    tokens = noise(1, 8000)
    built.register("x", tokens, NS)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            built.plan(tokens, NS)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                for i in range(12):
                    built.register(f"d{i}", noise(i, 4000), NS)
                os._exit(0)
            assert ended(child, PATIENCE_S), "the child hangs"
    finally:
        stop.set()
        reader.join(PATIENCE_S)


def ended(child: int, seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def test_registering_from_inside_a_lookup_fails_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    built = planner(1 << 18)
    find = built._find

    def find_and_register(*arguments: Any) -> FoundRuns:
        for number in range(20):
            built.register(f"n{number}", noise(number, 4000), NS)
        return find(*arguments)

    monkeypatch.setattr(built, "_find", find_and_register)
    built.register("d", noise(0, 2000), NS)
    with pytest.raises(RuntimeError, match="inside a look-up"):
        built.plan(noise(0, 2000), NS)


@pytest.mark.parametrize("component", [True, 1.0, b"a", ("a",)])
def test_a_namespace_takes_no_value_that_equals_another(component: object) -> None:
    with pytest.raises(TypeError, match="tenant"):
        Namespace(tenant=component, model="m")  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [b"\0" * 800, {1, 2}, {1: 2}, "text", 7, np.ones(100), np.ones((2, 50), np.uint32)])
def test_what_is_not_a_sequence_of_ids_is_refused(tokens: Any) -> None:
    with pytest.raises(ContractError):
        planner().plan(tokens, NS)


@pytest.mark.parametrize("prefix", [1.0, None, "3"])
def test_a_prefix_that_is_not_a_count_is_refused(prefix: Any) -> None:
    with pytest.raises(ContractError, match="exact_prefix_tokens"):
        planner().plan(noise(1, 200), NS, exact_prefix_tokens=prefix)


@pytest.mark.parametrize("donor_id", [None, "", 7, "x" * 300])
def test_a_donor_id_is_a_short_string(donor_id: Any) -> None:
    with pytest.raises(ContractError, match="donor id"):
        planner().register(donor_id, noise(1, 200), NS)


def test_a_refused_replacement_does_not_leave_the_old_tokens_behind() -> None:
    built = planner(1 << 20)
    built.register("d", noise(1, 1000), NS)
    with pytest.raises(Exception, match="budget"):
        built.register("d", noise(2, 400_000), NS)
    assert "d" not in built
    assert isinstance(built.plan(noise(1, 1000), NS), Decline)


def test_the_risk_of_a_trimmed_run_is_that_of_what_is_loaded() -> None:
    built = Planner(
        settings=Settings(embedder="none"),
        gates=Gates(min_reuse_ratio=0.0, boundary_recompute_tokens=64),
        budget_bytes=1 << 22,
    )
    built.register("d", noise(1, 500), NS)
    answer = built.plan(np.concatenate([noise(2, 100), noise(1, 500), noise(3, 10)]), NS)
    assert isinstance(answer, ReusePlan)
    (run,) = answer.runs
    assert run.risk.head_share == pytest.approx(100 / 164)
    assert run.risk.mean_share == pytest.approx(np.mean(100 / (164 + np.arange(436))), abs=0.002)
    short = built.plan(np.concatenate([noise(2, 100), noise(1, 500)[:70], noise(3, 100)]), NS)
    assert isinstance(short, Decline)  # six tokens after the boundary are not worth a load
