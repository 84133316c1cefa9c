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
from semblend.integration.vllm.commands import (
    CaptureCommand,
    LoadCommand,
    LoadReport,
    PrefillCommand,
    Readiness,
    StepCommands,
    StepReport,
)

pytestmark = pytest.mark.engine

ids = st.sampled_from(["a", "b", "c", "d"])
times = st.floats(0, 1e4)
reports = st.builds(LoadReport, st.just(("x",)), st.just(1), st.just(64), st.just(3), times, times)
faults = st.dictionaries(ids, st.sampled_from(["lost", "late"]))
rank_report = st.builds(
    StepReport,
    st.dictionaries(ids, reports),
    faults,
    st.dictionaries(ids, st.just(1)),
    faults,
    st.integers(0, 99),
    times,
)


@given(st.lists(rank_report, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_ranks_does_not_matter(reports: list[StepReport], shuffle: np.random.Generator) -> None:
    one = reduce(StepReport.aggregate, reports)
    other = list(reports)
    shuffle.shuffle(other)
    again = reduce(StepReport.aggregate, other)
    assert again.stored == one.stored
    assert again.loaded == one.loaded
    assert again.load_faults.keys() == one.load_faults.keys()
    assert again.capture_faults.keys() == one.capture_faults.keys()
    assert (again.captured_tokens, again.capture_ms) == (one.captured_tokens, one.capture_ms)


@given(st.lists(rank_report, min_size=1, max_size=4))
def test_nothing_is_lost_and_stored_counts_ranks(reports: list[StepReport]) -> None:
    before = pickle.dumps(reports)
    whole = reduce(StepReport.aggregate, reports)
    assert pickle.dumps(reports) == before, "aggregating changes no operand"
    for donor_id in "abcd":
        assert whole.stored.get(donor_id, 0) == sum(donor_id in rank.stored for rank in reports)
        assert (donor_id in whole.load_faults) == any(donor_id in rank.load_faults for rank in reports)
        assert (donor_id in whole.capture_faults) == any(donor_id in rank.capture_faults for rank in reports)
        assert (donor_id in whole.loaded) == any(donor_id in rank.loaded for rank in reports)
        timed = [rank.loaded[donor_id].load_ms for rank in reports if donor_id in rank.loaded]
        if timed:
            assert whole.loaded[donor_id].load_ms == max(timed)


@given(st.lists(rank_report, min_size=2, max_size=3))
def test_the_engine_s_own_aggregator_gives_the_same(reports: list[StepReport]) -> None:
    outputs = [
        ModelRunnerOutput([], {}, kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=rank))
        for rank in reports
    ]
    whole = KVOutputAggregator(len(reports)).aggregate(outputs, output_rank=0)
    assert whole.kv_connector_output.kv_connector_worker_meta == reduce(StepReport.aggregate, reports)


def test_a_silent_rank_hides_no_report() -> None:
    spoken = StepReport(stored={"a": 1})
    outputs = [
        ModelRunnerOutput([], {}, kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=meta))
        for meta in (None, spoken)
    ]
    whole = KVOutputAggregator(2).aggregate(outputs, output_rank=0)
    assert whole.kv_connector_output.kv_connector_worker_meta.stored == {"a": 1}


def test_everything_that_crosses_processes_survives_pickling() -> None:
    run = Run("d", 3, 40, 64, ContextRisk(40, 40, 0.5))
    load = LoadCommand("r", (4, 5), 0, 104, (run,), (TokenRange(0, 40),), np.arange(104), "")
    prefill = PrefillCommand("q", "e", (7, 8), 32, np.arange(12))
    commands = StepCommands([load], [CaptureCommand("r", "d", 70, 64, 6, (9,), True)], ["x"], ["y"], prefill)
    copy = pickle.loads(pickle.dumps(commands))
    assert copy.captures == commands.captures
    assert (copy.drops, copy.releases) == (["x"], ["y"])
    assert (copy.prefill.donor_id, copy.prefill.token_ids.tolist()) == ("e", list(range(12)))
    assert copy.loads[0].runs == (run,)
    assert copy.captures[0].is_last
    np.testing.assert_array_equal(copy.loads[0].claim_ids, load.claim_ids)
    ready = Readiness("", True, "digest", 16)
    assert pickle.loads(pickle.dumps(ready)) == ready


def test_a_report_of_another_connector_is_refused() -> None:
    with pytest.raises(TypeError, match="another connector"):
        StepReport().aggregate(object())  # type: ignore[arg-type]
