"""The plan: spread lengths, shared beginnings, company; the same seed, the same plan; and the mock that serves it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from semantic_kv.calibrate import FitOptions, calibrate_records
from semantic_kv.collect import CollectOptions, MockServer, PlanOptions, collect_from_mock, plan_requests, read_prompts
from semantic_kv.collect.mock import MOCK_MODEL
from semantic_kv.collect.prompts import BUILT_IN_TEXT
from sembase.errors import ConfigurationError, ContractError
from sembase.segment import Message
from sembase.trace.load import load_trace, read_records


def test_a_plan_has_everything_a_fit_needs() -> None:
    steps = plan_requests(BUILT_IN_TEXT, PlanOptions(requests=60))
    server = MockServer()
    looked_up = [server.look_up(step.request) for step in steps]
    prompt, cached = (np.array(column) for column in zip(*looked_up, strict=True))

    assert Counter(step.pace for step in steps) == {"alone": 24, "paced": 24, "burst": 12}
    assert prompt.min() < 250
    assert prompt.max() > 2_000
    share = cached / prompt
    assert (share < 0.05).sum() >= 15  # fresh
    assert ((share > 0.15) & (share < 0.85)).sum() >= 15  # partly shared
    assert all(step.gap > 0 for step in steps if step.pace == "paced")


def test_the_seed_decides_everything() -> None:
    first, again, other = (plan_requests(BUILT_IN_TEXT, PlanOptions(requests=25, seed=seed)) for seed in (3, 3, 4))

    assert first == again
    assert first != other


def test_prompts_as_they_are_keep_their_order() -> None:
    prompts = [(Message("user", text),) for text in ("one", "two")]
    steps = plan_requests(prompts, PlanOptions(requests=3, as_is=True))

    assert [step.request.messages[0].content for step in steps] == ["one", "two", "one"]


@pytest.mark.parametrize("options", [{"requests": 0}, {"requests": 10**6}, {"utilisation": 0.0}, {"concurrency": 999}])
def test_plans_without_bounds_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        PlanOptions(**options)  # type: ignore[arg-type]


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ContractError, match="at least 50"):
        plan_requests([(Message("user", "three small words"),)], PlanOptions())


def test_the_mock_hits_partial_prefixes_within_a_tenant() -> None:
    steps = plan_requests(BUILT_IN_TEXT, PlanOptions(requests=1))
    request = steps[0].request
    server = MockServer(block_tokens=16)
    prompt, cold = server.look_up(request)
    _, warm = server.look_up(request)

    assert cold == 0
    assert prompt - 16 <= warm < prompt


def test_a_mock_trace_is_anonymous_sorted_and_gives_the_mocks_constants(tmp_path: Path) -> None:
    path = tmp_path / "mock.jsonl"
    summary = collect_from_mock(CollectOptions(output=path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]

    assert summary.served == len(lines) == 120
    assert "ferry" not in path.read_text()
    assert all("text" not in block for line in lines for block in line["blocks"])
    assert all(line["metadata"]["mock"] for line in lines)
    times = [line["timestamp_ms"] for line in lines]
    assert times == sorted(times)
    trace = load_trace(path)
    assert trace.node_count < trace.reference_count  # shared beginnings are shared blocks
    fit = calibrate_records(read_records(path), options=FitOptions(resamples=0))
    assert fit.held_out_mdape < 0.06
    assert fit.model.ms_per_uncached_token == pytest.approx(MOCK_MODEL.ms_per_uncached_token, rel=0.06)


def test_keys_decide_the_digests(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    plan = PlanOptions(requests=2)
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    for path, key_file in zip(paths, (key, key, None), strict=True):
        collect_from_mock(CollectOptions(output=path, plan=plan, key_file=key_file))
    hashes = [[b["content_hash"] for b in json.loads(p.read_text().splitlines()[0])["blocks"]] for p in paths]

    assert hashes[0] == hashes[1]
    assert not set(hashes[0]) & set(hashes[2])
    key.write_text("short")
    with pytest.raises(ConfigurationError, match="at least 16"):
        collect_from_mock(CollectOptions(output=paths[0], key_file=key))


def test_text_is_kept_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    collect_from_mock(CollectOptions(output=path, plan=PlanOptions(requests=2), keep_text=True))

    assert "ferry" in path.read_text()
    with pytest.raises(ConfigurationError, match=r"must end in \.jsonl"):
        CollectOptions(output=tmp_path / "t.csv")


def test_prompt_files_of_several_shapes(tmp_path: Path) -> None:
    lines = tmp_path / "p.jsonl"
    lines.write_text('{"messages": [{"role": "system", "content": "s"}]}\n{"prompt": "one"}\n{"context": "two"}\n')
    text = tmp_path / "p.txt"
    text.write_text("only text")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"nothing": 1}\n')

    assert [messages[0].content for messages in read_prompts(lines)] == ["s", "one", "two"]
    assert read_prompts(text)[0][0].content == "only text"
    with pytest.raises(ContractError, match="line 1"):
        read_prompts(bad)
