from __future__ import annotations

import logging
from typing import Any

import pytest

from semblend.contract import FaultContained
from semblend.integration.border import MAX_ERROR_CHARACTERS, Border

LOG = logging.getLogger("semblend.test.border")


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


def border() -> tuple[Border, list[FaultContained]]:
    reported: list[FaultContained] = []
    return Border(reported.append, LOG), reported


def fail(message: str = "no") -> Any:
    raise ValueError(message)


def test_a_result_passes_through_and_nothing_is_reported() -> None:
    it, reported = border()
    assert it.call("load", "r1", lambda: 7, 0) == 7
    assert reported == []
    assert it.faults == {}


def test_an_exception_becomes_the_fallback_and_one_event(caplog: pytest.LogCaptureFixture) -> None:
    it, reported = border()
    assert it.call("load", "r1", fail, (0, False)) == (0, False)
    assert reported == [FaultContained("r1", "load", "ValueError: no")]
    assert it.faults == {"load": 1}
    assert "test_border.py" in caplog.text, "the first of its kind carries its traceback"


def test_a_fallback_may_be_made_on_demand() -> None:
    it, _ = border()
    made: list[int] = []
    assert it.call("plan", "r1", lambda: made, lambda: [1]) is made
    assert it.call("plan", "r1", fail, lambda: [1]) == [1]


def test_none_is_a_fallback() -> None:
    it, _ = border()
    assert it.call("capture", "r1", fail, None) is None


def test_the_same_fault_again_is_counted_without_a_traceback_and_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it, reported = border()
    for _ in range(100):
        it.call("load", "r1", fail, None)
    it.call("save", "r1", fail, None)
    assert it.faults == {"load": 100, "save": 1}
    assert len(reported) == 101
    assert [record.exc_info is not None for record in caplog.records] == [True] + [False] * 6 + [True]
    assert "64 times" in caplog.records[6].getMessage()


def test_a_long_or_unreadable_message_is_still_reported() -> None:
    it, reported = border()
    it.call("load", "r1", lambda: fail("x" * 9999), None)

    def unreadable() -> None:
        raise UnreadableError

    it.call("load", "r2", unreadable, None)
    assert len(reported[0].error) == MAX_ERROR_CHARACTERS
    assert reported[1].error == "UnreadableError: (message unreadable)"


def test_reporting_that_fails_is_contained_too() -> None:
    def report(_: FaultContained) -> None:
        raise OSError("disk full")

    it = Border(report, LOG)
    assert it.call("load", "r1", fail, "cold") == "cold"
    assert it.faults == {"load": 1}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_is_not_contained(error: type[BaseException]) -> None:
    it, reported = border()

    def leave() -> None:
        raise error

    with pytest.raises(error):
        it.call("load", "r1", leave, None)
    assert reported == []
