"""Bodies in memory: bounded for the process, and no tenant holds more than it leaves to the others."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import MovableClock, run_with_clock

from semgate.http import request_body
from semgate.http.faults import BODIES_FULL, BODY_TIMEOUT, RequestRefused
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.http.request_body import BODY_SECONDS, MIN_BODY_RATE, SILENT_SECONDS, read_body, read_in_time

MAX_BYTES = 1000


def is_admitted(held: HeldBody, size_bytes: int) -> bool:
    try:
        held.count(size_bytes)
    except RequestRefused as refused:
        return refused.fault != BODIES_FULL
    return True


def filled_by(budget: BodyBudget, tenant: str, size_bytes: int, limit: int = 1_000) -> int:
    return sum(is_admitted(HeldBody(budget, tenant), size_bytes) for _ in range(limit)) * size_bytes


@given(st.integers(1, 8), st.integers(1, 50))
def test_each_greedy_tenant_leaves_half_of_what_it_finds(tenants: int, size_bytes: int) -> None:
    budget = BodyBudget(100, MAX_BYTES)
    held = [filled_by(budget, str(number), size_bytes) for number in range(tenants)]
    left = MAX_BYTES - budget.held_bytes
    assert budget.held_bytes == sum(held)
    assert left >= MAX_BYTES >> tenants
    assert max(held) <= MAX_BYTES // 2
    assert is_admitted(HeldBody(budget, "victim"), left // 2)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.booleans()), max_size=40))
def test_what_is_dropped_is_given_back(turns: list[tuple[str, int, bool]]) -> None:
    budget, kept = BodyBudget(100, MAX_BYTES), []
    for tenant, size_bytes, is_parsed in turns:
        held = HeldBody(budget, tenant)
        if is_parsed:
            held.count_parsed(size_bytes)
        else:
            is_admitted(held, size_bytes)
        kept.append(held)
        assert budget.held_bytes <= MAX_BYTES
    for held in kept * 2:
        held.drop()
    assert (budget.held_bytes, budget.parsed_bytes, budget.tenants) == (0, 0, 0)


def test_the_largest_body_always_fits_a_budget_of_its_own() -> None:
    budget = BodyBudget(MAX_BYTES, max_bytes=10)
    assert is_admitted(HeldBody(budget, "t"), MAX_BYTES)


def test_an_announced_body_is_counted_before_it_arrives_and_only_once() -> None:
    async def work() -> None:
        budget, more = BodyBudget(100, MAX_BYTES), asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if more.is_set():
                return {"type": "http.request", "body": b"x" * 20, "more_body": False}
            await more.wait()
            return {"type": "http.request", "body": b"x" * 10, "more_body": True}

        held = HeldBody(budget, "t")
        reading = asyncio.create_task(read_body(receive, ((b"content-length", b"30"),), 100, held))
        await asyncio.sleep(0)
        assert budget.held_bytes == 30
        more.set()
        assert await reading == b"x" * 30
        assert budget.held_bytes == 30
        without = HeldBody(budget, "t")
        assert await read_body(receive, (), 100, without) == b"x" * 20
        assert budget.held_bytes == 50

    asyncio.run(work())


def test_an_announced_body_that_does_not_fit_is_refused_before_a_byte_is_read() -> None:
    budget = BodyBudget(100, MAX_BYTES)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("it reads")

    async def work() -> None:
        filled_by(budget, "t", 100)
        with pytest.raises(RequestRefused, match="overloaded"):
            await read_body(receive, ((b"content-length", b"100"),), 100, HeldBody(budget, "t"))

    asyncio.run(work())


class Sender:
    """A client that sends as much as the test says."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[int] = asyncio.Queue()

    async def __call__(self) -> MutableMapping[str, Any]:
        size = await self.pieces.get()
        return {"type": "http.request", "body": bytes(size), "more_body": size > 0}


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand times the limits, so that a machine that stalls makes nothing late."""
    monkeypatch.setattr(request_body, "SILENT_SECONDS", 1_000 * SILENT_SECONDS)
    monkeypatch.setattr(request_body, "BODY_SECONDS", 1_000 * BODY_SECONDS)
    monkeypatch.setattr(request_body, "MIN_BODY_RATE", MIN_BODY_RATE / 1_000)


async def pieces_until_refused(loop: MovableClock, piece_bytes: int, most: int) -> int | None:
    """One piece each thousand seconds, as many as were asked for; None if all of them are read."""
    sender, held = Sender(), HeldBody(BodyBudget(1 << 30), "t")
    reading = asyncio.create_task(read_in_time(sender, (), 1 << 30, held))
    for count in range(most):
        if piece_bytes:
            sender.pieces.put_nowait(piece_bytes)
        await loop.skip(1_000.0)
        if reading.done():
            with pytest.raises(RequestRefused) as refused:
                await reading
            assert refused.value.fault == BODY_TIMEOUT
            return count
    sender.pieces.put_nowait(0)
    await reading
    return None


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0.0, SILENT_SECONDS), (0.5, 2 * SILENT_SECONDS), (1.0, BODY_SECONDS), (9.0, BODY_SECONDS)]
)
@pytest.mark.usefixtures("patience")
def test_a_body_must_arrive_at_a_minimum_rate_and_within_a_limit(rate: float, seconds: float) -> None:
    async def act(loop: MovableClock) -> None:
        count = await pieces_until_refused(loop, int(rate * MIN_BODY_RATE), 1_000)
        assert count is not None
        assert seconds - 3 <= count <= seconds + 3

    run_with_clock(act)


@pytest.mark.usefixtures("patience")
def test_a_slow_body_that_keeps_the_rate_is_read_to_its_end() -> None:
    async def act(loop: MovableClock) -> None:
        assert await pieces_until_refused(loop, MIN_BODY_RATE, int(BODY_SECONDS) - 3) is None

    run_with_clock(act)
