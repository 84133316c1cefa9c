"""The log line per minute: how much of the prompts was reused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from semblend.contract import Declined, Event, LookupFinished, Materialized
from semblend.integration.event_sink import EventSink
from semblend.outcome import reuse_summary
from semblend.outcome.reuse_summary import ReuseSummary


class Minutes:
    """Ends intervals when a test says so."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pending: list[Callable[[], None]] = []
        self.summary = ReuseSummary(self.lines.append, self.pending.append)

    def served(self, *events: Event) -> None:
        for event in events:
            self.summary.count(event)

    def end(self) -> None:
        self.pending.pop()()


def looked_up(request: str, prompt: int, prefix: int = 0) -> LookupFinished:
    return LookupFinished(request, "n", prompt, prefix, 0, 0)


def loaded(request: str, tokens: int) -> Materialized:
    return Materialized(request, ("d",), tokens, 0, 1)


def test_a_minute_with_requests_leaves_one_line() -> None:
    minutes = Minutes()
    for number in range(9):
        minutes.served(looked_up(str(number), 1000), loaded(str(number), 850))
    for name, reason in (("x", "no_candidate"), ("y", "too_few_inexact"), ("z", "too_few_inexact")):
        minutes.served(looked_up(name, 100, prefix=64), Declined(name, reason))
    assert minutes.lines == []
    assert len(minutes.pending) == 1, "one end per interval"
    minutes.end()
    assert minutes.lines == [
        "SemBlend reused 7,650 of 9,300 prompt tokens (82 %) in 12 requests; the engine's prefix cache had 192; "
        "declined 3: too_few_inexact 2, no_candidate 1"
    ]


def test_a_minute_without_requests_leaves_none() -> None:
    minutes = Minutes()
    minutes.served(looked_up("a", 500), Declined("a", "no_candidate"))
    minutes.end()
    minutes.served(looked_up("b", 500))
    assert minutes.pending == [], "what was looked up is not served yet"
    minutes.summary.flush()
    minutes.served(loaded("b", 400))
    minutes.end()
    assert minutes.lines == [
        "SemBlend reused 0 of 500 prompt tokens (0 %) in 1 request; declined 1: no_candidate 1",
        "SemBlend reused 400 of 500 prompt tokens (80 %) in 1 request",
    ]


def test_requests_that_never_end_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_summary, "_MAX_OPEN", 2)
    minutes = Minutes()
    minutes.served(*(looked_up(name, 100) for name in "abc"), loaded("a", 50), loaded("b", 50), loaded("b", 50))
    minutes.end()
    assert minutes.lines == ["SemBlend reused 50 of 100 prompt tokens (50 %) in 1 request"]


def test_the_last_line_is_written_when_the_adapter_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threading.Timer, "start", lambda self: None)
    with caplog.at_level(logging.INFO):
        sink = EventSink(None, logging.getLogger("engine"), "vllm")
        for event in (looked_up("a", 100), loaded("a", 90)):
            sink.write(event)
        sink.close()
        sink.close()
    assert [line for line in caplog.messages if "prompt tokens" in line] == [
        "SemBlend reused 90 of 100 prompt tokens (90 %) in 1 request"
    ]
