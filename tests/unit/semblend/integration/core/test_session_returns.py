"""How likely sessions come back, by the way their answers end."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from semblend.integration.core.session_returns import MAX_OPEN, PRIOR, WINDOW_S, SessionReturns


def test_the_prior_holds_until_traffic_was_seen() -> None:
    assert SessionReturns().likelihood("stop") == pytest.approx(PRIOR["stop"])


def test_returns_raise_and_absence_lowers_the_likelihood() -> None:
    clock = Clock()
    returns = SessionReturns(clock)
    for n in range(100):
        returns.answered(b"%d" % n, "length")
        returns.arrived([b"x", b"%d" % n])
    assert returns.likelihood("length") > 0.9
    for n in range(400):
        returns.answered(b"%d" % n, "length")
    clock.now += WINDOW_S + 1
    returns.arrived([])
    assert returns.likelihood("length") < 0.25
    assert len(returns) == 0


def test_an_answer_returns_once() -> None:
    returns = SessionReturns(Clock())
    returns.answered(b"a", "stop")
    before = returns.likelihood("stop")
    returns.arrived([b"a"])
    once = returns.likelihood("stop")
    returns.arrived([b"a"])
    assert before < once == returns.likelihood("stop")


def test_what_is_pushed_out_early_is_not_counted() -> None:
    returns = SessionReturns(Clock())
    for n in range(MAX_OPEN + 50):
        returns.answered(b"%d" % n, "stop")
    assert len(returns) == MAX_OPEN
    assert returns.likelihood("stop") == pytest.approx(PRIOR["stop"])
