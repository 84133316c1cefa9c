"""Every policy decides the same in the compiled core and in the plain-Python oracle, block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.cache.spec import cache_spec
from semantic_kv.policy.registry import ADMISSION, EVICTION, eviction, merged_options
from sembase.labels import LABELS
from sembase.trace.columns import BlockTrace

EVICTIONS = EVICTION.names()  # all registered ones, including third-party policies
ADMISSIONS = ADMISSION.names()


def random_tree_trace(seed: int, requests: int = 220, sessions: int = 14) -> BlockTrace:
    """Sessions that grow, branch and come back; blocks of unequal size and every label."""
    rng = np.random.default_rng(seed)
    parent: list[int] = []
    child: dict[tuple[int, int], int] = {}
    paths: list[list[int]] = [[] for _ in range(sessions)]
    rows: list[list[int]] = []
    for _ in range(requests):
        path = paths[min(int(rng.exponential(3.0)), sessions - 1)]
        keep = len(path) if rng.random() < 0.8 else int(rng.integers(0, len(path) + 1))
        keys = path[:keep] + [int(key) for key in rng.integers(0, 3, int(rng.integers(0, 4)))]
        path[:] = (keys or [0])[:12]
        row, above = [], -1
        for key in path:
            if (above, key) not in child:
                child[(above, key)] = len(parent)
                parent.append(above)
            above = child[(above, key)]
            row.append(above)
        rows.append(row)
    return _columns(rows, parent, rng)


def _columns(rows: list[list[int]], parent: list[int], rng: np.random.Generator) -> BlockTrace:
    nodes, requests = len(parent), len(rows)
    unknown = np.full(requests, np.nan)
    return BlockTrace(
        name="random",
        block_tokens=None,
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        nodes=np.array([node for row in rows for node in row], np.int32),
        parent=np.array(parent, np.int32),
        content=np.arange(nodes, dtype=np.int32),
        node_tokens=rng.integers(1, 200, nodes).astype(np.int32),
        node_label=rng.integers(0, len(LABELS), nodes).astype(np.uint8),
        arrival_ms=np.cumsum(rng.exponential(4000.0, requests)),
        session=(np.arange(requests) // 40 - 1).astype(np.int32),
        tenant=np.full(requests, -1, np.int32),
        output_tokens=np.full(requests, -1, np.int32),
        finish=rng.integers(-1, 4, requests).astype(np.int32),
        observed_ttft_ms=unknown,
        observed_prefill_tokens=unknown.copy(),
        observed_hit_tokens=unknown.copy(),
    )


def _assert_same_decisions(evict: str, admit: str, model: CacheModel, unit: Unit, capacity: int) -> None:
    trace = random_tree_trace(seed=11)
    options = {"sample": 3.0} if evict == "session_pace" else {}
    policy = eviction(evict)
    spec = replace(
        cache_spec(capacity=capacity, admit=admit, model=model, unit=unit, seed=3),
        evict=policy,
        evict_options=merged_options(policy, options),
    )
    plain = ReferenceReplay(spec, trace)
    expected = plain.run()
    compiled = CompiledReplay(spec, journal_entries=100_000)
    compiled.feed(trace)
    assert compiled.journal.tolist() == plain.journal
    assert compiled.result().per_request_hit_blocks.tolist() == expected.per_request_hit_blocks.tolist()
    assert expected.evicted > 0  # otherwise nothing was decided
    if (weights := expected.weights_over_time) is not None:
        found = compiled.result().weights_over_time
        assert found is not None
        assert found.tolist() == weights.tolist()


@pytest.mark.parametrize("evict", EVICTIONS)
@pytest.mark.parametrize(
    ("model", "unit", "capacity"),
    [("prefix_tree", "blocks", 25), ("prefix_tree", "tokens", 3000), ("block_set", "tokens", 2500)],
)
def test_compiled_eviction_decides_as_the_oracle(evict: str, model: CacheModel, unit: Unit, capacity: int) -> None:
    _assert_same_decisions(evict, "always", model, unit, capacity)


@pytest.mark.parametrize(
    ("admit", "evict"),
    [*((admit, "static_semantic") for admit in ADMISSIONS), ("score", "adaptive_semantic"), ("score", "session_pace")],
)
def test_compiled_admission_decides_as_the_oracle(admit: str, evict: str) -> None:
    _assert_same_decisions(evict, admit, "prefix_tree", "blocks", 20)
    _assert_same_decisions(evict, admit, "block_set", "tokens", 2500)
