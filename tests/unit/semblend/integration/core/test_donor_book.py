"""The donor book against a plain model: never above the budget, the least recently used goes first."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from semblend.contract import Namespace
from semblend.integration.core.donor_book import Donor, DonorBook

BUDGET_TOKENS, BYTES = 100, 7
NAMESPACE = Namespace(tenant=None, model=None)
ids = st.integers(0, 9).map(str)


class Books(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.book = DonorBook(BUDGET_TOKENS * BYTES)
        self.stored: list[tuple[str, int]] = []  # oldest first
        self.reserved: dict[str, int] = {}

    @rule(name=ids, tokens=st.integers(1, 120))
    def reserve(self, name: str, tokens: int) -> None:
        if name in self.reserved or name in dict(self.stored):
            return  # ids are never given twice
        gone = self.book.reserve(Donor(name, tokens, NAMESPACE, tokens * BYTES))
        if sum(self.reserved.values()) + tokens > BUDGET_TOKENS:
            assert gone is None
            return
        expected = []
        while sum(dict(self.stored).values()) + sum(self.reserved.values()) + tokens > BUDGET_TOKENS:
            expected.append(self.stored.pop(0)[0])
        assert gone is not None
        assert [donor.donor_id for donor in gone] == expected
        self.reserved[name] = tokens

    @rule(name=ids)
    def store(self, name: str) -> None:
        donor = self.book.store(name)
        assert (donor is not None) == (name in self.reserved)
        if donor is not None:
            self.stored.append((name, self.reserved.pop(name)))

    @rule(name=ids)
    def touch(self, name: str) -> None:
        self.book.touch(name)
        self.stored.sort(key=lambda entry: entry[0] == name)

    @rule(name=ids)
    def remove(self, name: str) -> None:
        known = name in self.reserved or name in dict(self.stored)
        assert (self.book.remove(name) is not None) == known
        self.reserved.pop(name, None)
        self.stored = [entry for entry in self.stored if entry[0] != name]

    @invariant()
    def agrees(self) -> None:
        assert self.book.bytes_held == BYTES * (sum(dict(self.stored).values()) + sum(self.reserved.values()))
        assert self.book.bytes_held <= BUDGET_TOKENS * BYTES
        assert len(self.book) == len(self.stored)
        assert self.book.ids() == [*dict(self.stored), *self.reserved]
        for name in map(str, range(10)):
            assert (name in self.book) == (name in dict(self.stored))
            assert self.book.tokens_of(name) == dict(self.stored).get(name)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=30)
