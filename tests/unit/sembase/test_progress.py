"""Progress: throttled by the clock, one rewritten line on a terminal, lines elsewhere, nothing if quiet."""

from __future__ import annotations

import io
import sys
import time

import pytest

from sembase.progress import Progress, count_up


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, moved by the test."""
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


def test_elsewhere_a_line_every_twenty_seconds(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with count_up("cells", 4) as advance:
        for _ in range(4):
            now[0] += 10
            advance(1)
    lines = shown.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["cells: 2 of 4", "cells: 4 of 4"]
    assert lines[0].endswith("50 %  20 s left")


def test_a_terminal_has_one_line_that_is_cleared(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    progress = Progress(quiet=False)
    now[0] = 0.1
    progress.update("1 request", None)
    assert not shown.getvalue()
    now[0] = 0.3
    progress.update("2 requests", 0.25)
    progress.finish("2 requests")
    _, line, blank, end = shown.getvalue().split("\r")
    assert line.startswith("2 requests  [######..................]  25 %")
    assert len(line) < 80
    assert not blank.strip()
    assert not end


def test_quiet_and_nothing_to_do_show_nothing(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    for total, quiet in ((3, True), (0, False)):
        with count_up("cells", total, quiet=quiet) as advance:
            now[0] += 100
            advance(total)
    assert not shown.getvalue()
