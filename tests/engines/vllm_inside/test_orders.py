"""What ranks report is put together: nothing is lost, a fault on one rank wins, the order of ranks does not matter."""

from __future__ import annotations

import pickle
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.vllm_inside.engine import KVConnectorOutput, KVOutputAggregator, ModelRunnerOutput

from semblend.contract import ContextRisk, Run, TokenRange
from semblend.integration.vllm.orders import (
    CaptureOrder,
    LoadOrder,
    LoadReport,
    Readiness,
    StepNews,
    StepOrders,
    StudyOrder,
)

pytestmark = pytest.mark.engine

ids = st.sampled_from(["a", "b", "c", "d"])
times = st.floats(0, 1e4)
reports = st.builds(LoadReport, st.just(("x",)), st.just(1), st.just(64), st.just(3), times, times)
faults = st.dictionaries(ids, st.sampled_from(["lost", "late"]))
rank_news = st.builds(
    StepNews, st.dictionaries(ids, reports), faults, st.dictionaries(ids, st.just(1)), faults, st.integers(0, 99), times
)


@given(st.lists(rank_news, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_ranks_does_not_matter(news: list[StepNews], shuffle: np.random.Generator) -> None:
    one = reduce(StepNews.aggregate, news)
    other = list(news)
    shuffle.shuffle(other)
    again = reduce(StepNews.aggregate, other)
    assert again.stored == one.stored
    assert again.loaded == one.loaded
    assert again.load_faults.keys() == one.load_faults.keys()
    assert again.capture_faults.keys() == one.capture_faults.keys()
    assert (again.captured_tokens, again.capture_ms) == (one.captured_tokens, one.capture_ms)


@given(st.lists(rank_news, min_size=1, max_size=4))
def test_nothing_is_lost_and_stored_counts_ranks(news: list[StepNews]) -> None:
    before = pickle.dumps(news)
    whole = reduce(StepNews.aggregate, news)
    assert pickle.dumps(news) == before, "aggregating changes no operand"
    for donor_id in "abcd":
        assert whole.stored.get(donor_id, 0) == sum(donor_id in rank.stored for rank in news)
        assert (donor_id in whole.load_faults) == any(donor_id in rank.load_faults for rank in news)
        assert (donor_id in whole.capture_faults) == any(donor_id in rank.capture_faults for rank in news)
        assert (donor_id in whole.loaded) == any(donor_id in rank.loaded for rank in news)
        timed = [rank.loaded[donor_id].load_ms for rank in news if donor_id in rank.loaded]
        if timed:
            assert whole.loaded[donor_id].load_ms == max(timed)


@given(st.lists(rank_news, min_size=2, max_size=3))
def test_the_engine_s_own_aggregator_gives_the_same(news: list[StepNews]) -> None:
    outputs = [
        ModelRunnerOutput([], {}, kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=rank)) for rank in news
    ]
    whole = KVOutputAggregator(len(news)).aggregate(outputs, output_rank=0)
    assert whole.kv_connector_output.kv_connector_worker_meta == reduce(StepNews.aggregate, news)


def test_a_rank_that_is_silent_hides_no_news() -> None:
    spoken = StepNews(stored={"a": 1})
    outputs = [
        ModelRunnerOutput([], {}, kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=meta))
        for meta in (None, spoken)
    ]
    whole = KVOutputAggregator(2).aggregate(outputs, output_rank=0)
    assert whole.kv_connector_output.kv_connector_worker_meta.stored == {"a": 1}


def test_everything_that_crosses_processes_survives_pickling() -> None:
    run = Run("d", 3, 40, 64, ContextRisk(40, 40, 0.5))
    load = LoadOrder("r", (4, 5), 0, 104, (run,), (TokenRange(0, 40),), np.arange(40), "")
    study = StudyOrder("q", "e", (7, 8), 32, np.arange(12))
    orders = StepOrders([load], [CaptureOrder("r", "d", 70, 64, 6, (9,), True)], ["x"], ["y"], study)
    copy = pickle.loads(pickle.dumps(orders))
    assert copy.captures == orders.captures
    assert (copy.drops, copy.releases) == (["x"], ["y"])
    assert (copy.study.donor_id, copy.study.token_ids.tolist()) == ("e", list(range(12)))
    assert copy.loads[0].runs == (run,)
    assert copy.captures[0].is_last
    np.testing.assert_array_equal(copy.loads[0].token_ids, load.token_ids)
    ready = Readiness("", True, "digest", 16)
    assert pickle.loads(pickle.dumps(ready)) == ready


def test_news_of_another_connector_is_refused() -> None:
    with pytest.raises(TypeError, match="another connector"):
        StepNews().aggregate(object())  # type: ignore[arg-type]
