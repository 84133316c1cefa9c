"""What plans save is less what they load, recompute and look up."""

from __future__ import annotations

import numpy as np
import pytest

from sembase.trace.reuse_counter import RequestReuse
from semblend.contract import PlanShape
from semblend.plan.selection import MAX_QUESTION_TOKENS, SHORT_PROMPT_FRACTION
from semestimate.anywhere import AnywhereCounter, Saved
from semestimate.cost import OVERHEAD_S, RECOMPUTED_COST, Price
from semestimate.work import Work

PRICE = Price("test", True, 1, s_per_token=1e-3, s_per_pair=0.0, load_s_per_token=1e-4, kv_bytes_per_token=None)


def served(document_tokens: int, question_tokens: int) -> Saved:
    """One document under another head of 64 tokens, as the default gates serve it."""
    counter = AnywhereCounter()
    counter.add(RequestReuse(0, 32 + document_tokens, 0, None, np.zeros((0, 4), np.int64)))
    counter.add(
        RequestReuse(1, 64 + document_tokens + question_tokens, 0, None, np.array([[0, 32, 64, document_tokens]]))
    )
    (found,) = counter.total.served.values()
    return found


def test_a_short_prompt_pays_for_recomputed_tokens() -> None:
    found = served(document_tokens=1_000, question_tokens=40)
    reused, recomputed = found.work.tokens, found.recomputed.tokens
    assert 900 < reused <= 1_000
    assert recomputed == int(SHORT_PROMPT_FRACTION * reused)
    expected = 1e-3 * reused - 1e-4 * reused - RECOMPUTED_COST * 1e-3 * recomputed - OVERHEAD_S
    assert PRICE.net_seconds({next(iter(PlanShape)): found}) == pytest.approx(expected)


@pytest.mark.parametrize(("document", "question"), [(4_000, 40), (1_000, MAX_QUESTION_TOKENS + 1)])
def test_long_prompts_and_those_without_a_question_recompute_nothing(document: int, question: int) -> None:
    assert served(document, question).recomputed == Work()
