"""A store that failed is left alone for a while, probed by one request, and used again when it answers."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from semblend.fleet.store_pause import FIRST_PAUSE_S, MAX_PAUSE_S, StorePause

PROBE_S = 2.0


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def pause(clock: Clock) -> StorePause:
    return StorePause(PROBE_S, clock)


def paused_for(pause: StorePause, clock: Clock) -> float:
    """Move the clock to the end of the pause; how far that was."""
    started = clock.now
    while pause.is_on:
        clock.now += FIRST_PAUSE_S / 8
        assert clock.now - started <= MAX_PAUSE_S
    return clock.now - started


def test_a_store_that_answers_is_asked_by_everyone(pause: StorePause) -> None:
    for _ in range(3):
        assert not pause.is_on
        pause.asked()
    pause.answered()
    assert not pause.is_on


def test_each_failed_probe_doubles_the_pause_up_to_its_maximum(pause: StorePause, clock: Clock) -> None:
    pauses = []
    for _ in range(7):
        asked_s = clock.now
        pause.asked()
        clock.now += PROBE_S / 2
        pause.failed(asked_s)
        pauses.append(paused_for(pause, clock))
    assert pauses == [FIRST_PAUSE_S * factor for factor in (1, 2, 4, 8, 16)] + [MAX_PAUSE_S] * 2


def test_one_request_probes_and_the_others_do_not_ask_until_its_result(pause: StorePause, clock: Clock) -> None:
    pause.failed(clock.now)
    paused_for(pause, clock)
    asked_s = clock.now
    pause.asked()
    assert pause.is_on
    clock.now += PROBE_S / 2
    assert pause.is_on
    pause.failed(asked_s)
    assert paused_for(pause, clock) == 2 * FIRST_PAUSE_S


def test_an_answer_ends_the_pause_and_the_next_one_is_short_again(pause: StorePause, clock: Clock) -> None:
    for _ in range(4):
        pause.failed(clock.now)
        paused_for(pause, clock)
    pause.asked()
    pause.answered()
    assert not pause.is_on
    pause.asked()
    assert not pause.is_on, "not a probe any more"
    pause.failed(clock.now)
    assert paused_for(pause, clock) == FIRST_PAUSE_S


def test_requests_that_asked_before_the_failure_do_not_lengthen_its_pause(pause: StorePause, clock: Clock) -> None:
    asked_s = clock.now
    clock.now += PROBE_S
    for _ in range(8):
        pause.failed(asked_s)
    assert paused_for(pause, clock) == FIRST_PAUSE_S
    pause.failed(asked_s)
    assert not pause.is_on, "even when they report late"


def test_a_probe_without_a_result_is_followed_by_another(pause: StorePause, clock: Clock) -> None:
    pause.failed(clock.now)
    paused_for(pause, clock)
    pause.asked()
    assert paused_for(pause, clock) == PROBE_S
    pause.asked()
    assert pause.is_on
