"""The published traces, where they lie beside this clone: the counts of their index, and the known ceilings."""

from __future__ import annotations

import numpy as np
import pytest
from scripts.data.folder import REAL_DATA
from tests.unit.sembase.counted_reuse import counted_reuse

from sembase.trace.build import in_time_order
from sembase.trace.load import load_trace, read_records

DATA = REAL_DATA

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared traces are not beside this clone"),
]


@pytest.mark.parametrize(
    ("name", "requests", "references", "ceiling"),
    [
        ("traces/mooncake_conversation_trace.jsonl.gz", 12_031, 288_500, 0.3664),
        ("traces/mooncake_synthetic_trace.jsonl.gz", 3_993, 121_877, 0.6396),
    ],
)
def test_published_traces_and_their_ceilings(name: str, requests: int, references: int, ceiling: float) -> None:
    trace = load_trace(DATA / name)
    trace.check()
    assert trace.request_count == requests
    assert trace.reference_count == references
    assert 1 - trace.node_count / references == pytest.approx(ceiling, abs=0.0001)


def test_claude_code_sessions() -> None:
    trace = load_trace(DATA / "traces/weka_claude_code.jsonl.gz", options={"max_sessions": 40, "sessions_at_once": 8})
    trace.check()
    assert len(np.unique(trace.session)) == 40
    assert (np.diff(trace.arrival_ms) >= 0).all()
    assert len(np.unique(trace.content)) == trace.node_count  # chained


@pytest.mark.parametrize("name", ["azure_2023_code", "azure_2023_conv"])
def test_azure_arrivals(name: str) -> None:
    trace = load_trace(DATA / f"traces/{name}.csv.gz")
    assert trace.request_count == (8_819 if name.endswith("code") else 19_366)
    assert 3_400_000 < trace.arrival_ms[-1] < 3_700_000
    assert 1 - trace.node_tokens.sum() / trace.node_tokens[trace.nodes].sum() == pytest.approx(0.4, abs=0.01)


def test_moved_passages_of_agent_texts() -> None:
    found = counted_reuse(in_time_order(read_records(DATA / "text/agent_taubench.jsonl.gz"), "taubench"))
    assert found.prefix_tokens / found.prompt_tokens == pytest.approx(0.820, abs=0.005)
    assert found.either_tokens / found.prompt_tokens == pytest.approx(0.861, abs=0.005)
