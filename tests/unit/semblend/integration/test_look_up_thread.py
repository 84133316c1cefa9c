"""Look-ups on a thread of their own: ordered, bounded, dropped when the request is gone; by events, not by clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from semblend.contract import Decline, DeclineReason
from semblend.integration.vllm.look_up_thread import QUEUE_LIMIT, LookUpThread

LONG_S = 60.0  # only to fail instead of hanging


class Asked:
    """Answers when ``gate`` is open, and notes what it was asked."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        self.seen: list[Any] = []

    def __call__(self, record: Any, boundary: int) -> Decline:
        self.entered.set()
        assert self.gate.wait(LONG_S)
        self.seen.append(record)
        if record == "broken":
            raise OSError("injected")
        return Decline(DeclineReason.NO_CANDIDATE, f"{record} at {boundary}")


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def thread(asked: Asked) -> Any:
    made: Any = LookUpThread(asked)
    yield made
    asked.gate.set()
    made.close()


def test_answers_come_in_order_and_a_dropped_look_up_is_skipped(thread: Any, asked: Asked) -> None:
    pending = [thread.submit(name, at, 7) for at, name in enumerate(("a", "b", "c"))]
    assert asked.entered.wait(LONG_S)
    assert not any(one.ready.is_set() for one in pending)
    pending[1].is_dropped = True
    asked.gate.set()
    assert pending[2].ready.wait(LONG_S)
    assert asked.seen == ["a", "c"]
    assert pending[2].result().detail == "c at 2"
    assert not pending[1].ready.is_set()


def test_a_fault_is_raised_where_the_answer_is_taken(thread: Any, asked: Asked) -> None:
    asked.gate.set()
    broken, sound = thread.submit("broken", 0, 0), thread.submit("a", 0, 0)
    assert sound.ready.wait(LONG_S), "the thread survives"
    with pytest.raises(OSError, match="injected"):
        broken.result()


def test_a_full_queue_takes_nothing(thread: Any, asked: Asked) -> None:
    first = thread.submit("a", 0, 0)
    assert asked.entered.wait(LONG_S)
    taken = [thread.submit(str(n), 0, 0) for n in range(QUEUE_LIMIT + 3)]
    assert [one is None for one in taken] == [False] * QUEUE_LIMIT + [True] * 3
    asked.gate.set()
    assert taken[QUEUE_LIMIT - 1].ready.wait(LONG_S)
    assert first.result().detail == "a at 0"
