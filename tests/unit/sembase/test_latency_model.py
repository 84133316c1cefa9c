"""The latency formula: against sums written out by hand, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semantic_kv.latency import LatencyModel, attended_pairs, latency_model_from_record
from semantic_kv.latency.estimate import model_ttft
from sembase.errors import ContractError
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace


@given(st.integers(0, 60), st.integers(0, 60))
def test_attention_counts_every_pair_once(uncached: int, cached: int) -> None:
    counted = sum(cached + place + 1 for place in range(uncached))

    assert attended_pairs(np.array([uncached]), np.array([cached]))[0] == counted


def test_the_defaults_are_the_published_formula() -> None:
    assert LatencyModel().ttft_ms(np.array([1_000]), np.array([500])).tolist() == [80.0 + 0.08 * 1_000]


def test_every_term_adds_what_it_says() -> None:
    model = LatencyModel(10.0, 0.5, 3.0, 0.01, 2.0, 5.0, 1.0, source="given")
    ttft = model.ttft_ms(np.array([200]), np.array([300]), loaded_blocks=np.array([4]))
    pairs = (200 * 300 + 200 * 201 / 2) / 1e6

    assert ttft[0] == pytest.approx(10 + 5 + 0.5 * 200 + 3 * pairs + 0.01 * 300 + 2 * 4)
    assert model.decode_ms(np.array([1, 11]), streams=3.0).tolist() == [0.0, 10 * (5.0 + 3.0)]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_coefficient_that_is_no_duration_is_refused(value: float) -> None:
    with pytest.raises(ContractError, match="step_ms"):
        LatencyModel(step_ms=value)


def test_a_record_comes_back_and_misspelt_coefficients_do_not() -> None:
    model = LatencyModel(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, source="calibrated")

    assert latency_model_from_record(model.as_record()) == model
    with pytest.raises(ContractError, match="ms_per_tokn"):
        latency_model_from_record({"base_ms": 1, "ms_per_uncached_token": 1, "ms_per_tokn": 3})
    with pytest.raises(ContractError, match="at least base_ms"):
        latency_model_from_record({"base_ms": 1.0})


def _trace() -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(0, np.array(keys), 16) for keys in ([1, 2, 3], [1, 2], [1, 2, 3, 4])]
    offsets = np.array([0, 3, 5, 9], dtype=np.int64)
    return block_trace("t", offsets, np.concatenate(rows), interner, arrival_ms=np.array([0.0, 1.0, 2.0]))


def test_a_replays_hits_become_modelled_times_alone_and_in_a_queue() -> None:
    trace, hits = _trace(), np.array([0, 32, 48], dtype=np.int32)
    model = LatencyModel(base_ms=10.0, ms_per_uncached_token=1.0, source="given")

    alone = model_ttft(trace, hits, model)
    queued = model_ttft(trace, hits, model, queueing="fifo")
    batched = model_ttft(trace, hits, model, queueing="engine")

    assert alone.ttft_ms.tolist() == [58.0, 10.0, 26.0]
    assert (alone.uncached_tokens, alone.prompt_tokens) == (64, 144)
    # One server: the second waits 47 of the first's 48 ms, the third 46.
    assert queued.ttft_ms.tolist() == [58.0, 57.0, 72.0]
    assert queued.wait_ms.tolist() == [0.0, 47.0, 46.0]
    # An engine takes both into the pass after the first; the second's one recomputed token is in it.
    assert batched.ttft_ms.tolist() == [58.0, 10 + 47 + 17, 10 + 46 + 17]


def test_more_hits_than_prompt_are_refused() -> None:
    with pytest.raises(ContractError, match="hit tokens"):
        model_ttft(_trace(), np.array([49, 0, 0]), LatencyModel())
