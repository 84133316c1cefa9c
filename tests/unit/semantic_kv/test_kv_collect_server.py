"""Collecting from a server: the first token's time, the server's counts, faults, order, and no prompt text."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.openai_server import running

from semantic_kv.collect import (
    Collection,
    CollectOptions,
    PlanOptions,
    PromptRequest,
    Served,
    TraceRecorder,
    collect_from_server,
    plan_requests,
)
from semantic_kv.collect.chunks import read_answer
from semantic_kv.collect.plan import Step
from semantic_kv.collect.prompts import BUILT_IN_TEXT
from semantic_kv.collect.request import OK
from semantic_kv.collect.run import warm_up_requests
from sembase.errors import ConfigurationError
from sembase.http.event_stream import EventScanner
from sembase.segment import Message
from sembase.trace.load import read_records


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(ttft_ms=30.0, itl_ms=2.0, tokens=4) as url:
        yield url


def test_a_real_stream_is_timed_and_counted(address: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    seen: list[Served] = []
    options = CollectOptions(
        output=path, base_url=f"{address}/v1", plan=PlanOptions(requests=12, max_prompt_tokens=400, output_tokens=4)
    )
    summary = collect_from_server(options, seen.append)
    records = list(read_records(path))

    assert (summary.requests, summary.served, summary.failures) == (12, 12, {})
    assert not summary.reports_cached_tokens  # the fake says nothing about its cache, and nothing is made of that
    assert summary.peak_concurrency <= 4
    assert len(seen) == 12
    measured = [record for record in records if not record.metadata.get("warm_up")]
    assert len(records) - len(measured) == 2
    for record in measured:
        assert record.observed_ttft_ms is not None
        assert record.observed_total_latency_ms is not None
        assert 30.0 <= record.observed_ttft_ms <= record.observed_total_latency_ms
        assert record.output_tokens in range(2, 5)
        assert record.observed_prefix_hit_tokens is None
        assert record.observed_prefill_tokens is None
        assert record.metadata["prompt_tokens"] > 0
    assert "ferry" not in path.read_text()


def test_an_unreachable_server_is_reported_in_one_line(tmp_path: Path) -> None:
    options = CollectOptions(output=tmp_path / "t.jsonl", base_url="http://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="start the server"):
        collect_from_server(options)
    with pytest.raises(ConfigurationError, match="invalid server URL"):
        collect_from_server(CollectOptions(output=tmp_path / "t.jsonl", base_url="localhost:8000"))
    assert list(tmp_path.iterdir()) == []


def _events(*events: object) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


def _delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}], "model": "m"}


def test_the_first_token_is_not_the_role_chunk() -> None:
    events = EventScanner(keep="all")
    events.feed(_events(_delta(role="assistant", content="")), 1.0)
    first = _events(_delta(content="Hi"))
    events.feed(first[:10], 2.0)
    events.feed(first[10:], 3.0)
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    events.feed(_events({"choices": [], "usage": usage}, b"[DONE]"), 4.0)
    answer = read_answer(events)

    assert (events.arrivals, events.done, answer.fault) == ([3.0], True, None)
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (9, 4, 2)
    assert answer.model_name == "m"


@pytest.mark.parametrize(
    "delta", [{"reasoning_content": "hm"}, {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}]
)
def test_thoughts_and_tool_calls_are_tokens_too(delta: dict[str, object]) -> None:
    events = EventScanner(keep="all")
    events.feed(_events(_delta(**delta)), 5.0)

    assert events.arrivals == [5.0]


def test_what_a_server_sends_never_raises() -> None:
    events = EventScanner(keep="all")
    events.feed(b'data: {no json\n\ndata: [1]\n\n: comment\ndata: {"choices": [7], "usage": 3}\n', 1.0)
    answer = read_answer(events)

    assert answer.fault == "an event is not JSON"
    assert answer.cached_tokens is None
    broken = EventScanner(keep="all")
    broken.feed(_events({"error": {"message": "out of memory"}}), 1.0)
    assert read_answer(broken).fault is not None
    endless = EventScanner(keep="all", max_line_bytes=10)
    endless.feed(b"data: " + b"x" * 20, 1.0)
    assert "longer than" in (read_answer(endless).fault or "")


class _Scripted:
    """Gives the scripted answers after the scripted waits."""

    def __init__(self, answers: dict[str, Served], waits_s: dict[str, float] | None = None) -> None:
        self._answers = answers
        self._waits_s = waits_s or {}

    async def ask(self, request: PromptRequest) -> Served:
        await asyncio.sleep(self._waits_s.get(request.request_id, 0.0))
        return self._answers[request.request_id]


def _request(name: str) -> PromptRequest:
    return PromptRequest(name, (Message("user", f"text of {name}"),), 4)


def test_records_come_in_order_of_sending_and_failures_keep_no_times() -> None:
    good = Served(OK, 10.0, 20.0, 50, 16, 4, "m")
    server = _Scripted({"a": good, "b": Served("http 500: as you wished", 3.0), "c": good}, {"a": 0.05})
    stream = io.StringIO()
    steps = [Step(_request(name), "burst") for name in "abc"]
    summary = asyncio.run(Collection(server, TraceRecorder(stream, None), 3).run(steps))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert [line["request_id"] for line in lines] == ["a", "b", "c"]
    assert summary.failures == {"http 500: as you wished": 1}
    assert (summary.served, summary.peak_concurrency, summary.reports_cached_tokens) == (2, 3, True)
    assert "observed_ttft_ms" not in lines[1]
    assert lines[1]["metadata"]["status"] == "failed"
    assert (lines[0]["observed_prefix_hit_tokens"], lines[0]["observed_prefill_tokens"]) == (16, 34)


@pytest.mark.parametrize(("reported_before", "expected"), [(True, 0), (False, None)])
def test_a_missing_count_is_zero_only_for_a_server_that_reported_one_before(
    reported_before: bool, expected: int | None
) -> None:
    warm = Served(OK, 10.0, 20.0, 50, 48 if reported_before else None, 4, "m")
    silent = Served(OK, 10.0, 20.0, 50, None, 4, "m")
    stream = io.StringIO()
    server = _Scripted({"warm": warm, "a": silent})
    asyncio.run(
        Collection(server, TraceRecorder(stream, None), 1).run([Step(_request("a"), "alone")], [_request("warm")])
    )
    record = json.loads(stream.getvalue().splitlines()[1])

    assert record.get("observed_prefix_hit_tokens") == expected
    assert record.get("observed_prefill_tokens") == (None if expected is None else 50)


def test_a_request_sent_alone_overlaps_no_other() -> None:
    open_now, met = 0, []

    class Watching:
        async def ask(self, request: PromptRequest) -> Served:
            nonlocal open_now
            met.append((request.request_id, open_now))
            open_now += 1
            await asyncio.sleep(0.01)
            open_now -= 1
            return Served(OK, 1.0, 2.0, 5, 0, 1, "m")

    steps = [Step(_request("b1"), "burst"), Step(_request("b2"), "burst"), Step(_request("alone"), "alone")]
    asyncio.run(Collection(Watching(), TraceRecorder(io.StringIO(), None), 2).run(steps))

    assert met == [("b1", 0), ("b2", 1), ("alone", 0)]


def test_the_warm_up_shares_no_beginning_with_the_plan() -> None:
    steps = plan_requests(BUILT_IN_TEXT, PlanOptions(requests=5))
    first, second = warm_up_requests(steps)

    assert first.messages == second.messages
    assert all(not step.request.messages[0].content.startswith("Warm-up") for step in steps)
    assert first.messages[0].content.startswith("Warm-up")
