"""Time between tokens beside a repair, without an engine: which gaps count, and how policies are compared."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

import pytest
from benchmarks.agent_breaks.neighbours import Neighbours, Window, ratio_interval, report
from benchmarks.vllm.client import Ask, Client, RequestFailedError


class Ticking(Client):
    """Three tokens per request, at 1, 2 and 4 s of its own clock; another request follows 100 s later."""

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.is_empty = False
        self.asked: list[str] = []

    def token_times(self, ask: Ask) -> Generator[float]:
        if not self.left:
            self.is_empty = True
            raise RequestFailedError("no more")
        self.left -= 1
        start = 100.0 * len(self.asked)
        self.asked.append(ask.salt)
        yield from (start + 1.0, start + 2.0, start + 4.0)


def _run_until_all_are_asked(neighbours: Neighbours, client: Ticking) -> None:
    with neighbours.running():
        while not client.is_empty:
            time.sleep(0.001)


def test_only_gaps_within_a_request_and_within_the_window_count() -> None:
    client = Ticking(2)
    neighbours = Neighbours(client, 1)
    with pytest.raises(RequestFailedError):
        _run_until_all_are_asked(neighbours, client)
    assert len(set(client.asked)) == 2, "no request is served by an earlier one"
    assert neighbours.gaps_ms(0.0, 1e9) == [1_000.0, 2_000.0, 1_000.0, 2_000.0]
    assert neighbours.gaps_ms(1.5, 103.0) == [2_000.0, 1_000.0]


def windows(policy: str, gaps_ms: tuple[float, ...], repaired: int = 0) -> list[Window]:
    return [Window(policy, 0, f"s{number}", 500, repaired, gaps_ms) for number in range(3)]


def test_a_slow_step_in_a_hundred_moves_the_ratio_and_one_in_a_thousand_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steady = (10.0,) * 1_000
    off = windows("off", steady)
    often = windows("likely", (10.0,) * 980 + (30.0,) * 20, 256)
    rare = windows("idle", (10.0,) * 999 + (30.0,))
    assert ratio_interval(often, off)[0] == pytest.approx(3.0)
    assert ratio_interval(rare, off) == pytest.approx((1.0, 1.0, 1.0))
    named = {verdict.name.partition(":")[0]: verdict for verdict in report([*off, *often, *rare])}
    assert (named["idle"].holds, named["likely"].holds) == (True, False)
    assert "768" in capsys.readouterr().out


def test_windows_in_which_nothing_was_reused_are_left_out() -> None:
    off = windows("off", (10.0,) * 100)
    cold = [replace(window, reused_tokens=0) for window in windows("likely", (90.0,) * 100)]
    assert report([*off, *cold]) == []


@pytest.mark.parametrize("salt", ["a/0001", "a@b", "a\\b", "a\0b", "a" * 129])
def test_a_salt_that_the_engine_refuses_is_refused_before_a_server_has_started(salt: str) -> None:
    with pytest.raises(ValueError, match="cache salt"):
        Ask((1, 2), 1, salt)
