"""Many replicas: one is the simulator of one engine, sharing only adds, and a slow carrier changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.simulator.replicas import SHARING, WRITES, Carrier, FleetReplay, Sharing, simulate_fleet
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.semantic_kv.test_kv_reuse_repair import TOKENS, contents_shuffled, session, trace_of

from semantic_kv.policy.reuse import Reuse, ReuseName
from semantic_kv.simulate import simulate
from sembase.errors import ConfigurationError
from sembase.latency import LatencyModel
from sembase.trace.columns import BlockTrace

FREE = Carrier(bytes_per_token=0, ms_per_fetch=0.0)
ENOUGH = 10_000


def reuse(name: ReuseName = "blend") -> Reuse:
    return Reuse(name, min_inexact_tokens=128, boundary_recompute_tokens=20)


def of_sessions(trace: BlockTrace, seed: int, count: int = 12) -> BlockTrace:
    drawn = np.random.default_rng(seed).integers(0, count, trace.request_count)
    return replace(trace, session=drawn.astype(np.int32))


def figures(found: FleetReplay) -> tuple[list[int], list[int]]:
    return found.exact.tolist(), found.reused.tolist()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), capacity=st.integers(0, 80), name=st.sampled_from(["prefix", "blend"]))
def test_one_replica_is_the_simulator_of_one_engine(seed: int, capacity: int, name: ReuseName) -> None:
    trace = contents_shuffled(seed)
    one = simulate(trace, capacity=capacity, reuse=reuse(name), reference=True)
    fleet = simulate_fleet(trace, replicas=1, capacity=capacity, reuse=reuse(name))
    assert figures(fleet) == (one.per_request_hit_tokens.tolist(), one.per_request_reused_tokens.tolist())
    assert (fleet.loaded_tokens, fleet.fetched_tokens, fleet.tier_tokens, fleet.donor_tokens) == (0, 0, 0, 0)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_one_repaired_replica_is_one_engine_with_time_for_every_repair(seed: int) -> None:
    trace = contents_shuffled(seed)
    trace = replace(trace, arrival_ms=np.arange(trace.request_count, dtype=np.float64) * 1e9)
    given_ = replace(reuse("blend_idle"), latency=LatencyModel(base_ms=0.0, ms_per_uncached_token=1e-6))
    one = simulate(trace, capacity=ENOUGH, reuse=given_, reference=True)
    fleet = simulate_fleet(trace, replicas=1, capacity=ENOUGH, reuse=given_, is_repaired=True)
    assert figures(fleet) == (one.per_request_hit_tokens.tolist(), one.per_request_reused_tokens.tolist())


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), replicas=st.integers(1, 6))
def test_a_shared_tier_without_bounds_makes_one_cache_of_all(seed: int, replicas: int) -> None:
    trace = of_sessions(contents_shuffled(seed), seed)
    whole = simulate(trace, capacity=ENOUGH, reference=True)
    settings_ = {"reuse": reuse("prefix"), "carrier": FREE}
    fleet = simulate_fleet(trace, replicas=replicas, capacity=3, sharing="prefixes", **settings_)  # type: ignore[arg-type]
    assert fleet.exact.tolist() == whole.per_request_hit_tokens.tolist()
    distinct = np.unique(trace.nodes)
    assert fleet.tier_tokens == trace.node_tokens[distinct].sum()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), replicas=st.integers(2, 6), sharing=st.sampled_from(SHARING))
@example(seed=239, replicas=2, sharing="donors")  # a block that was exact here, was evicted and has to be fetched
def test_a_carrier_slower_than_prefill_is_never_used(seed: int, replicas: int, sharing: Sharing) -> None:
    trace = of_sessions(contents_shuffled(seed), seed)
    slow = Carrier(bytes_per_s=1.0)
    alone = simulate_fleet(trace, replicas=replicas, capacity=50, reuse=reuse(), seed=seed)
    fleet = simulate_fleet(
        trace, replicas=replicas, capacity=50, sharing=sharing, reuse=reuse(), carrier=slow, seed=seed
    )
    assert figures(fleet) == figures(alone)
    assert fleet.loaded_tokens == fleet.fetched_tokens == 0


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    replicas=st.integers(1, 6),
    sharing=st.sampled_from(SHARING),
    writes=st.sampled_from(WRITES),
)
def test_tokens_are_conserved(seed: int, replicas: int, sharing: Sharing, writes: str) -> None:
    trace = of_sessions(contents_shuffled(seed), seed)
    settings_ = {"sharing": sharing, "writes": writes, "reuse": reuse(), "carrier": FREE, "seed": seed}
    fleet = simulate_fleet(trace, replicas=replicas, capacity=40, **settings_)  # type: ignore[arg-type]
    assert ((fleet.exact + fleet.reused) <= fleet.prompt).all()
    assert fleet.prompt.sum() == trace.node_tokens[trace.nodes].sum()
    assert fleet.loaded_tokens <= fleet.exact.sum()
    assert fleet.donor_tokens <= fleet.prompt.sum()
    assert 0 <= fleet.cached_fraction <= 1
    repeated = simulate_fleet(trace, replicas=replicas, capacity=40, **settings_)  # type: ignore[arg-type]
    assert figures(repeated) == figures(fleet)


def test_a_document_computed_by_one_replica_is_fetched_once_by_each_other() -> None:
    document = list(range(100, 120))
    rows = [[head, *document, 900 + head] for head in range(1, 41)]
    trace = trace_of(rows, sessions=[-1] * len(rows))
    alone = simulate_fleet(trace, replicas=4, capacity=ENOUGH, reuse=reuse())
    fleet = simulate_fleet(trace, replicas=4, capacity=ENOUGH, sharing="donors", reuse=reuse(), carrier=FREE)
    size = len(document) * TOKENS
    assert (alone.reused > 0).sum() == len(rows) - 4, "each replica computes it once"
    assert (fleet.reused > 0).sum() == len(rows) - 1, "the fleet computes it once"
    assert fleet.fetched_tokens == 3 * size
    assert fleet.donor_tokens == len(rows[0]) * TOKENS


def test_only_prompts_that_were_mostly_computed_are_written() -> None:
    trace = trace_of(session(9, None))
    options = {"replicas": 1, "capacity": ENOUGH, "sharing": "donors", "reuse": reuse(), "carrier": FREE}
    every = simulate_fleet(trace, writes="all", **options)  # type: ignore[arg-type]
    computed = simulate_fleet(trace, writes="computed", **options)  # type: ignore[arg-type]
    assert every.donor_tokens == trace.prompt_tokens().sum()
    assert computed.donor_tokens == trace.prompt_tokens()[0]


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"capacity": -1}, {"sharing": "everything"}, {"writes": "nothing"}])
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    options = {"replicas": 2, "capacity": 10} | wrong
    with pytest.raises(ConfigurationError):
        simulate_fleet(trace_of(session(2, None)), **options)  # type: ignore[arg-type]
