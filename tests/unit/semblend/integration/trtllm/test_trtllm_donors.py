"""The leader's donors: what host memory they hold, by a running sum that equals counting them all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import DonorError
from semblend.contract import Namespace
from semblend.integration.trtllm.donors import Candidate, Donors

PAGE_BYTES = 10
NAMESPACE = Namespace("t", "m", None, "k", "d", "l", 16, "r", None, "p")


class SmallIndex:
    """A planner's index of three places; refuses donors whose id begins with ``huge``."""

    def __init__(self) -> None:
        self.living: list[str] = []

    def register(self, donor_id: str, tokens: Any, namespace: Namespace, text: str | None = None) -> list[str]:
        if donor_id.startswith("huge"):
            raise DonorError("larger than the index")
        self.living.append(donor_id)
        gone, self.living = self.living[:-3], self.living[-3:]
        return gone

    def forget(self, donor_id: str) -> None:
        if donor_id in self.living:
            self.living.remove(donor_id)


def counted(donors: Donors) -> int:
    book = donors._book
    return sum(donor.kv_bytes for donor in (*book._stored.values(), *book._reserved.values()))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["saved", "failed", "huge", "late"])), max_size=40),
)
def test_the_running_sum_is_what_counting_gives_and_never_more_than_the_budget(steps: list[tuple[int, str]]) -> None:
    donors = Donors(SmallIndex(), lambda _: None, 1, 20 * PAGE_BYTES)  # type: ignore[arg-type]
    for number, (blocks, outcome) in enumerate(steps):
        name = f"{outcome}{number}"
        candidate = Candidate(name, "1", np.zeros(blocks, np.uint32), NAMESPACE, blocks)
        if donors.begin_save(candidate, PAGE_BYTES):
            if outcome == "failed":
                donors.save_failed(name)
            elif outcome != "late":
                donors.saved(name)
        assert donors._book.bytes_held == counted(donors) <= 20 * PAGE_BYTES
        assert set(donors._saving) == set(donors._book._reserved)
    for name in list(donors._saving):
        donors.saved(name)
        assert donors._book.bytes_held == counted(donors)
