"""The capture queue: every token once, in bounded steps, and every held request released exactly once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import Namespace
from semblend.integration.core.donor_book import DonorBook
from semblend.integration.vllm.capture import CaptureQueue
from semblend.integration.vllm.commands import CaptureCommand
from semblend.integration.vllm.options import ConnectorOptions

pytestmark = pytest.mark.engine
NAMESPACE = Namespace(tenant=None, model=None)


class Table:
    """Requests with block ids that no other request has."""

    def __init__(self, block: int, step: int) -> None:
        self.block = block
        self.given_up: list[str] = []
        self.book = DonorBook(10**6)
        options = ConnectorOptions(capture_step_tokens=step)
        self.captures = CaptureQueue(options, self.book, block, 1, lambda _: None, self.given_up.append)
        self.requests: dict[str, Any] = {}

    def open(self, name: str, tokens: int, computed: int | None = None) -> Any:
        done = tokens if computed is None else computed
        request = SimpleNamespace(request_id=name, num_preemptions=0, num_computed_tokens=done)
        self.requests[name] = request
        assert self.captures.open(request, f"donor-{name}", tokens, NAMESPACE)  # type: ignore[arg-type]
        return request

    def blocks(self, name: str) -> list[int]:
        base = 1000 * (1 + list(self.requests).index(name))
        return [base + n for n in range(-(-self.requests[name].num_computed_tokens // self.block))]

    def slices(self) -> list[CaptureCommand]:
        return self.captures.slices(self.blocks)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=6),
    st.sampled_from([16, 32]),
    st.integers(1, 200),
    st.sets(st.integers(0, 5)),
    st.integers(0, 6),
)
def test_slices_cover_every_job_once(sizes: list[int], block: int, step: int, over: set[int], after: int) -> None:
    table = Table(block, step)
    for n, tokens in enumerate(sizes):
        table.open(f"r{n}", tokens)
    done = dict.fromkeys(table.requests, 0)
    released: list[str] = []
    held: list[str] = []
    for turn in range(400):
        if turn == after:
            for n in over & set(range(len(sizes))):
                name = f"r{n}"
                if table.captures.finish(table.requests[name], table.blocks(name), 10**6):
                    held.append(name)
        commands = table.slices()
        if not commands and turn > after:
            break
        assert sum(command.tokens for command in commands) <= max(block, step // block * block)
        for command in commands:
            name, tokens = command.request_id, command.donor_tokens
            assert command.start == done[name], "in order, nothing twice"
            assert command.start % block == 0
            done[name] += command.tokens
            assert command.is_last == (done[name] == tokens)
            assert command.is_last or command.tokens % block == 0
            first = command.start // block
            expected = table.blocks(name)[first : -(-done[name] // block)]
            assert list(command.block_ids) == expected
            if command.release:
                assert command.is_last
                released.append(name)
    assert [done[f"r{n}"] for n in range(len(sizes))] == sizes
    assert sorted(released) == sorted(held)
    assert not table.captures.waiting_blocks
    assert table.captures.forget_all() == []


def test_nothing_is_copied_before_the_prefill_is_done() -> None:
    table = Table(16, 64)
    request = table.open("a", 100, computed=99)
    assert table.slices() == []
    request.num_computed_tokens = 100
    assert [command.tokens for command in table.slices()] == [64]


def test_preemption_gives_up_what_was_copied() -> None:
    table = Table(16, 64)
    request = table.open("a", 100)
    assert len(table.slices()) == 1
    request.num_preemptions, request.num_computed_tokens = 1, 0
    assert table.slices() == []
    assert table.captures.take_dropped() == ["donor-a"]
    assert table.book.bytes_held == 0
    assert table.captures.finish(request, [], 100) is False
    assert table.captures.take_dropped() == []


@pytest.mark.parametrize("computed", [0, 99])
def test_a_request_that_ends_before_its_prefill_holds_nothing(computed: int) -> None:
    table = Table(16, 64)
    request = table.open("a", 100, computed=computed)
    assert table.captures.finish(request, table.blocks("a"), 100) is False
    assert table.captures.take_dropped() == ["donor-a"]
    assert table.slices() == []


def test_too_many_waiting_blocks_give_up_the_newcomer() -> None:
    table = Table(16, 16)
    table.open("a", 160)
    table.open("b", 160)
    assert table.captures.finish(table.requests["a"], table.blocks("a"), 60) is True
    assert table.captures.finish(table.requests["b"], table.blocks("b"), 60) is False
    assert table.captures.take_dropped() == ["donor-b"]
    assert table.captures.forget_all() == ["a"]
    assert table.book.bytes_held == 0


def test_a_reused_id_is_a_new_job() -> None:
    table = Table(16, 1024)
    table.open("a", 100)
    assert [command.donor_id for command in table.slices()] == ["donor-a"]
    assert table.captures.finish(table.requests["a"], table.blocks("a"), 100) is False
    table.open("a", 50)
    assert [(command.start, command.tokens) for command in table.slices()] == [(0, 50)]


def test_a_complete_copy_is_not_dropped_with_its_request() -> None:
    """Once everything was ordered the donor no longer depends on its request."""
    table = Table(16, 1024)
    table.open("a", 100)
    table.slices()
    table.book.store("donor-a")
    table.captures.cancel("a")
    assert table.captures.forget_all() == []
    assert "donor-a" in table.book
    assert table.captures.take_dropped() == []
