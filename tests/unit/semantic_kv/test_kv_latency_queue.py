"""The queues: against Lindley's recursion, against a clock that ticks, and by their laws."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semantic_kv.latency import Engine, LatencyModel, batched_times, fifo_queue
from semantic_kv.latency.batching import WORK
from sembase.errors import ContractError

Floats = npt.NDArray[np.float64]
_jobs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12)
_asks = st.lists(
    st.tuples(st.integers(0, 80), st.integers(1, 50), st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=9
)


def _columns(rows: Sequence[tuple[int, ...]]) -> list[Floats]:
    return [np.array(column, dtype=np.float64) for column in zip(*sorted(rows), strict=True)]


@given(_jobs)
def test_one_server_is_lindleys_recursion(jobs: list[tuple[int, int, int]]) -> None:
    arrival, prefill, decode = _columns(jobs)
    wait, expected = 0.0, []
    for index in range(len(jobs)):
        if index:
            wait = max(0.0, wait + prefill[index - 1] + decode[index - 1] - (arrival[index] - arrival[index - 1]))
        expected.append(wait)

    assert fifo_queue(arrival, prefill, decode, lanes=1, slots=1).wait_ms.tolist() == expected


@given(_jobs, st.integers(1, 3), st.integers(1, 4))
def test_lanes_and_slots_are_what_a_ticking_clock_sees(
    jobs: list[tuple[int, int, int]], lanes: int, slots: int
) -> None:
    arrival, prefill, decode = _columns(jobs)
    times = fifo_queue(arrival, prefill, decode, lanes=lanes, slots=slots)

    assert times.finish_ms.tolist() == _ticking(arrival, prefill, decode, lanes, slots)
    assert (times.wait_ms >= 0).all()


def _ticking(arrival: Floats, prefill: Floats, decode: Floats, lanes: int, slots: int) -> list[float]:
    """Event by event: who may enter, enters; who may prefill, prefills."""
    finish = [0.0] * len(arrival)
    lane_ends: list[float] = []
    slot_ends: list[float] = []
    entered, started = 0, 0
    events = sorted(set(arrival.tolist()))
    heapq.heapify(events)
    while started < len(arrival):
        now = heapq.heappop(events)
        in_prefill = sum(end > now for end in lane_ends)
        in_slots = sum(end > now for end in slot_ends) + (entered - started)
        progress = True
        while progress:
            progress = False
            if entered < len(arrival) and arrival[entered] <= now and in_slots < slots:
                entered, in_slots, progress = entered + 1, in_slots + 1, True
            if started < entered and in_prefill < lanes:
                first = now + prefill[started]
                finish[started] = float(first + decode[started])
                lane_ends.append(first)
                slot_ends.append(finish[started])
                in_prefill += first > now
                in_slots -= finish[started] <= now
                heapq.heappush(events, first)
                heapq.heappush(events, finish[started])
                started, progress = started + 1, True
    return finish


@given(_jobs)
def test_another_server_never_delays_a_request(jobs: list[tuple[int, int, int]]) -> None:
    arrival, prefill, decode = _columns(jobs)
    few = fifo_queue(arrival, prefill, decode, lanes=1, slots=1).first_token_ms
    more = fifo_queue(arrival, prefill, decode, lanes=2, slots=2).first_token_ms

    assert (more <= few).all()


def test_requests_out_of_order_are_served_by_arrival() -> None:
    times = fifo_queue(np.array([10.0, 0.0]), np.array([5.0, 20.0]))

    assert times.wait_ms.tolist() == [10.0, 0.0]
    assert times.first_token_ms.tolist() == [25.0, 20.0]


def test_a_queue_without_requests_is_empty_and_nonsense_is_refused() -> None:
    assert fifo_queue(np.empty(0), np.empty(0)).wait_ms.size == 0
    with pytest.raises(ContractError, match="lanes and slots"):
        fifo_queue(np.zeros(1), np.zeros(1), lanes=0)
    with pytest.raises(ContractError, match="service times"):
        fifo_queue(np.zeros(1), np.array([-1.0]))


_MODEL = LatencyModel(7.0, 0.5, 40.0, 0.02, 0.0, 3.0, 0.25, source="given")


@given(_asks, st.integers(1, 64), st.integers(1, 4))
def test_the_engine_does_what_a_plain_scheduler_does(
    asks: list[tuple[int, int, int, int]], pass_tokens: int, slots: int
) -> None:
    arrival, uncached, cached, output = _columns(asks)
    times = batched_times(arrival, uncached, cached, output, _MODEL, Engine(pass_tokens, slots))
    first, finish = _plain_engine(arrival, uncached, cached, output, pass_tokens, slots)

    assert times.first_token_ms == pytest.approx(first)
    assert times.finish_ms == pytest.approx(finish)


@given(_asks, st.integers(1, 64))
def test_the_work_times_its_price_is_the_time(asks: list[tuple[int, int, int, int]], pass_tokens: int) -> None:
    """What makes the calibration linear, given the schedule."""
    arrival, uncached, cached, output = _columns(asks)
    times = batched_times(arrival, uncached, cached, output, _MODEL, Engine(pass_tokens, 3))
    price = np.array([getattr(_MODEL, name) for name in WORK])

    assert times.first_token_work @ price + _MODEL.base_ms == pytest.approx(times.first_token_ms - arrival)
    assert times.decode_work @ price == pytest.approx(times.finish_ms - times.first_token_ms)


def _plain_engine(
    arrival: Floats, uncached: Floats, cached: Floats, output: Floats, pass_tokens: int, slots: int
) -> tuple[list[float], list[float]]:
    """Lists and a loop over passes, nothing incremental."""
    count, now = len(arrival), 0.0
    left = [int(max(tokens, 1)) for tokens in uncached]
    to_decode = [int(tokens) for tokens in output]
    began: list[int] = []
    first, finish = [0.0] * count, [0.0] * count
    state = ["waiting"] * count
    while any(each != "done" for each in state):
        decoding = [i for i in range(count) if state[i] == "decoding"]
        ready = [i for i in range(count) if state[i] in ("waiting", "prefill") and arrival[i] <= now]
        if not decoding and not ready:
            now = min(float(arrival[i]) for i in range(count) if state[i] == "waiting")
            continue
        budget, took = (
            max(pass_tokens - len(decoding), 0),
            _MODEL.step_ms + _MODEL.ms_per_decoding_stream * len(decoding),
        )
        for i in ready:
            running = sum(each in ("prefill", "decoding") for each in state)
            if budget <= 0 or (state[i] == "waiting" and running >= slots):
                break
            if state[i] == "waiting":
                state[i] = "prefill"
                began.append(i)
                took += _MODEL.ms_per_cached_token * cached[i]
            chunk = min(left[i], budget)
            behind = cached[i] + max(uncached[i], 1) - left[i]
            pairs = sum(behind + k + 1 for k in range(chunk)) / 1e6
            took += _MODEL.ms_per_uncached_token * chunk + _MODEL.ms_per_million_pairs * pairs
            left[i] -= chunk
            budget -= chunk
        now += took
        for i in decoding:
            to_decode[i] -= 1
        for i in range(count):
            if state[i] == "prefill" and left[i] == 0:
                state[i], first[i] = "decoding", now + _MODEL.base_ms
                to_decode[i] -= 1
            if state[i] == "decoding" and to_decode[i] == 0:
                state[i], finish[i] = "done", now + _MODEL.base_ms
    return first, finish


def test_a_request_alone_costs_what_the_formula_says() -> None:
    times = batched_times(np.array([5.0]), np.array([40]), np.array([20]), np.array([3]), _MODEL)

    alone = float(_MODEL.ttft_ms(np.array([40]), np.array([20]))[0])
    assert times.first_token_ms[0] - 5.0 == pytest.approx(alone)
    assert times.finish_ms[0] - times.first_token_ms[0] == pytest.approx(2 * (3.0 + 0.25))


def test_bad_engines_and_columns_are_refused() -> None:
    with pytest.raises(ContractError, match="pass_tokens"):
        Engine(pass_tokens=0)
    with pytest.raises(ContractError, match="the same length"):
        batched_times(np.zeros(2), np.ones(1), np.ones(2), np.ones(2), _MODEL)
