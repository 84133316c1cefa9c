"""``WindowIndex`` against brute force, its isolation, its deletions and its budget."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sembase.errors import DonorError, MissingDependencyError
from semblend.contract import UNKNOWN, Namespace
from semblend.search import vectors
from semblend.search.vectors import WindowIndex, bytes_per_window

pytest.importorskip("usearch", reason="usearch is not installed")

HERE, THERE = Namespace(tenant="a", model="m"), Namespace(tenant="b", model="m")


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def some_vectors(count: int, seed: int, dimensions: int = 32) -> NDArray[np.float32]:
    return unit(np.random.default_rng(seed).normal(size=(count, dimensions)))


def test_recall_against_brute_force() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 64))
    held = unit(centres[rng.integers(0, 40, 4000)] + 0.5 * rng.normal(size=(4000, 64)))
    index = WindowIndex(64)
    for donor in range(400):
        index.add(f"d{donor}", HERE, held[donor * 10 : donor * 10 + 10])
    queries = unit(held[rng.integers(0, 4000, 50)] + 0.05 * rng.normal(size=(50, 64)))
    right = 0
    for query in queries:
        best = (held @ query).reshape(400, 10).max(axis=1)
        expected = set(np.argsort(-best)[:5].tolist())
        found = index.search(HERE, query[None], 5)
        right += len(expected & {int(name[1:]) for name, _ in found})
        for name, similarity in found:
            assert similarity == pytest.approx(best[int(name[1:])], abs=0.02)
    assert right / (50 * 5) > 0.95


def test_best_similarity_per_donor_over_all_windows() -> None:
    index = WindowIndex(32)
    rows = some_vectors(6, seed=1)
    index.add("two windows", HERE, rows[:2])
    index.add("one window", HERE, rows[2:3])
    found = dict(index.search(HERE, np.stack([rows[1], rows[4]]), 5))
    assert found["two windows"] == pytest.approx(1.0, abs=0.01)
    assert set(found) == {"two windows", "one window"}
    assert [donor for donor, _ in index.search(HERE, rows[2:3], 1)] == ["one window"]


def test_namespaces_do_not_see_each_other() -> None:
    index = WindowIndex(32)
    rows = some_vectors(3, seed=2)
    index.add("d", HERE, rows)
    assert index.search(THERE, rows, 5) == []
    assert index.search(Namespace(tenant=None, model="m"), rows, 5) == []
    with pytest.raises(DonorError, match="tenant"):
        index.add("e", Namespace(tenant=UNKNOWN, model="m"), rows)


def test_adding_again_replaces_even_across_namespaces() -> None:
    index = WindowIndex(32)
    rows = some_vectors(4, seed=3)
    index.add("d", HERE, rows[:2])
    index.add("d", THERE, rows[2:])
    assert index.search(HERE, rows, 5) == []
    assert len(index) == 1
    assert index.windows == 2


operations = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 12), st.integers(0, 4)), max_size=60)


@settings(max_examples=40, deadline=None)
@given(operations)
def test_any_sequence_of_additions_and_removals_matches_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    index = WindowIndex(16)
    expected: dict[str, NDArray[np.float32]] = {}
    for number, (kind, donor, windows) in enumerate(steps):
        name = f"d{donor}"
        if kind == "remove":
            assert index.remove(name) == (name in expected)
            expected.pop(name, None)
        else:
            expected[name] = some_vectors(windows, seed=number, dimensions=16)
            index.add(name, HERE, expected[name])
            if windows == 0:
                del expected[name]
    assert len(index) == len(expected)
    assert index.windows == sum(map(len, expected.values()))
    for name, rows in expected.items():
        assert name in index
        assert index.search(HERE, rows, 20)[0][1] == pytest.approx(1.0, abs=0.01)
    everything = index.search(HERE, some_vectors(3, seed=99, dimensions=16), 20)
    assert {donor for donor, _ in everything} == set(expected)


def test_removed_donors_are_gone_and_the_graph_is_rebuilt() -> None:
    index = WindowIndex(32)
    rows = some_vectors(3000, seed=4)
    for donor in range(300):
        index.add(f"d{donor}", HERE, rows[donor * 10 : donor * 10 + 10])
    for donor in range(290):
        assert index.remove(f"d{donor}")
    for query in rows[:2900:50]:
        assert {donor for donor, _ in index.search(HERE, query[None], 20)} <= {f"d{n}" for n in range(290, 300)}
    assert index.search(HERE, rows[2950:2951], 1)[0][0] == "d295"
    assert index.bytes_used == 100 * bytes_per_window(32)


def test_the_budget_evicts_what_was_used_longest_ago() -> None:
    index = WindowIndex(32, byte_budget=3 * bytes_per_window(32))
    rows = some_vectors(5, seed=5)
    for donor in range(3):
        assert index.add(f"d{donor}", HERE, rows[donor : donor + 1]) == ()
    assert index.search(HERE, rows[:1], 1)[0][0] == "d0"  # used now, though added first
    assert index.add("d3", THERE, rows[3:4]) == ("d1",)
    assert index.search(HERE, rows[:1], 1)[0][0] == "d0"
    assert index.bytes_used <= 3 * bytes_per_window(32)
    with pytest.raises(DonorError, match="more than the index may hold"):
        index.add("large", HERE, rows[:4])


def test_the_namespace_used_longest_ago_leaves_whole() -> None:
    index = WindowIndex(32, max_namespaces=2)
    rows = some_vectors(3, seed=6)
    index.add("a", Namespace(tenant="1", model="m"), rows[:1])
    index.add("b", Namespace(tenant="2", model="m"), rows[1:2])
    index.search(Namespace(tenant="1", model="m"), rows, 1)
    assert index.add("c", Namespace(tenant="3", model="m"), rows[2:]) == ("b",)
    assert "a" in index
    assert "b" not in index


def test_wrong_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="32 dimensions"):
        WindowIndex(32).search(HERE, some_vectors(1, seed=0, dimensions=16), 1)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "usearch_index", None)
    with pytest.raises(MissingDependencyError, match=r"usearch.*kvmend\[embedder\]"):
        WindowIndex(32)


def test_threads_may_add_remove_and_search_together() -> None:
    index = WindowIndex(32)
    failures: list[Exception] = []

    def work(worker: int) -> None:
        try:
            for step in range(60):
                rows = some_vectors(3, seed=worker * 1000 + step)
                index.add(f"{worker}-{step}", HERE, rows)
                assert index.search(HERE, rows, 3)[0][0] == f"{worker}-{step}"
                if step % 2:
                    assert index.remove(f"{worker}-{step}")
        except Exception as error:  # noqa: BLE001 - carried to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(index) == 4 * 30
