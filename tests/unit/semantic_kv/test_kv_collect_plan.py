"""The plan: spread lengths, shared beginnings, company; the same seed, the same plan; and the mock that serves it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from semantic_kv.calibrate import calibrate_records
from semantic_kv.collect import PlanOptions, collect_mock_trace, plan_requests
from semantic_kv.collect.mock import BLOCK_TOKENS, MOCK_MODEL, MockServer
from semantic_kv.collect.text import BUILT_IN_TEXT
from sembase.errors import ConfigurationError, ContractError
from sembase.trace.load import load_trace, read_records

TEXTS = (BUILT_IN_TEXT,)


def test_a_plan_has_everything_a_fit_needs() -> None:
    steps = plan_requests(TEXTS, PlanOptions(requests=60))
    server = MockServer()
    looked_up = [server.look_up(step.messages) for step in steps]
    prompt, cached = (np.array(column) for column in zip(*looked_up, strict=True))

    assert Counter(step.pace for step in steps) == {"alone": 24, "paced": 24, "burst": 12}
    assert prompt.min() < 250
    assert prompt.max() > 2_000
    share = cached / prompt
    assert (share < 0.05).sum() >= 15  # fresh
    assert ((share > 0.15) & (share < 0.85)).sum() >= 15  # partly shared
    assert all(step.gap > 0 for step in steps if step.pace == "paced")


def test_the_seed_decides_everything() -> None:
    first, again, other = (plan_requests(TEXTS, PlanOptions(requests=25, seed=seed)) for seed in (3, 3, 4))

    assert first == again
    assert first != other


@pytest.mark.parametrize("requests", [0, 10**6])
def test_plans_without_bounds_are_refused(requests: int) -> None:
    with pytest.raises(ConfigurationError):
        PlanOptions(requests=requests)


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ContractError, match="at least 50"):
        plan_requests(("three small words",), PlanOptions())


def test_the_mock_hits_partial_prefixes() -> None:
    (step,) = plan_requests(TEXTS, PlanOptions(requests=1))
    server = MockServer()
    prompt, cold = server.look_up(step.messages)
    _, warm = server.look_up(step.messages)

    assert cold == 0
    assert prompt - BLOCK_TOKENS <= warm < prompt


def test_a_mock_trace_is_anonymous_sorted_and_gives_the_mocks_constants(tmp_path: Path) -> None:
    path = tmp_path / "mock.jsonl"
    written = collect_mock_trace(path, PlanOptions())
    lines = [json.loads(line) for line in path.read_text().splitlines()]

    assert written == len(lines) == 120
    assert "ferry" not in path.read_text()
    assert all("text" not in block for line in lines for block in line["blocks"])
    assert all(line["metadata"]["mock"] for line in lines)
    times = [line["timestamp_ms"] for line in lines]
    assert times == sorted(times)
    trace = load_trace(path)
    assert trace.node_count < trace.reference_count  # shared beginnings are shared blocks
    fit = calibrate_records(read_records(path))
    assert fit.held_out_mdape < 0.06
    assert fit.model.ms_per_uncached_token == pytest.approx(MOCK_MODEL.ms_per_uncached_token, rel=0.06)


def test_two_traces_share_no_digest(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path in paths:
        collect_mock_trace(path, PlanOptions(requests=2))
    hashes = [{b["content_hash"] for b in json.loads(p.read_text().splitlines()[0])["blocks"]} for p in paths]

    assert not hashes[0] & hashes[1], "the key of the digests is random and not stored"


def test_text_is_kept_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    collect_mock_trace(path, PlanOptions(requests=2), keep_text=True)

    assert "ferry" in path.read_text()
    with pytest.raises(ConfigurationError, match=r"must end in \.jsonl"):
        collect_mock_trace(tmp_path / "t.csv", PlanOptions(requests=2))
