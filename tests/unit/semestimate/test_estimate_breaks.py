"""Prefix breaks planted in real conversations are found with their cause, and what growing sessions do is not one."""

from __future__ import annotations

import pytest
from benchmarks.estimate.planted import confusion, read_texts, records_of, scores
from scripts.data.folder import REAL_DATA

from sembase.tokenizer import open_tokenizer
from semestimate.breaks import BreakFinder
from semestimate.causes import Cause
from semestimate.recent import PROMPT_BYTES
from semestimate.request import Request, RequestReader

real_texts = pytest.mark.skipif(not REAL_DATA.is_dir(), reason="no real texts; run: make data")


@pytest.mark.shared_data
@real_texts
def test_planted_breaks_are_found_with_their_cause() -> None:
    for cause, precision, recall in scores(confusion(read_texts(), 12, seed=5)):
        assert precision >= 0.9, cause
        assert recall >= 0.9, cause


def request(*blocks: tuple[str, str], session: str = "s") -> Request:
    body = {"messages": [{"role": role, "content": text} for role, text in blocks]}
    record, _ = records_of((body, body), session, 0.0)
    return RequestReader(open_tokenizer(None)).request_of(record)


def words(name: str, count: int = 200) -> str:
    return " ".join(f"{name}{'abcdefghij'[number % 10]}{'klmnopqrst'[number // 10 % 10]}" for number in range(count))


def test_a_changed_date_in_the_head_recovers_what_follows_it() -> None:
    finder = BreakFinder()
    policy, question = words("policy"), words("question", 60)
    finder.add(request(("system", f"It is 2026-11-17 05:10.\n\n{policy}"), ("user", question)), 0, 0, ())
    found = finder.add(request(("system", f"It is 2026-11-18 09:41.\n\n{policy}"), ("user", question)), 1, 0, ())
    assert found is not None
    assert found.cause is Cause.DATE_OR_ID
    assert found.recoverable_tokens >= 260  # the policy and the question


def test_a_session_that_grows_has_no_break() -> None:
    finder = BreakFinder()
    first = [("system", words("policy")), ("user", words("question"))]
    assert finder.add(request(*first), 0, 0, ()) is None
    grown_by_two = [*first, ("assistant", words("answer")), ("user", words("again"))]
    assert finder.add(request(*grown_by_two), 1, 400, ()) is None
    assert (finder.misses.starts.requests, finder.misses.new_text.requests) == (1, 1)


def test_a_forgotten_session_starts_again() -> None:
    finder = BreakFinder(max_bytes=2 * PROMPT_BYTES)
    for number in range(6):
        finder.add(
            request(("system", words("policy")), ("user", words(f"q{number}x")), session=f"s{number}"), number, 0, ()
        )
    finder.add(request(("system", words("policy")), ("user", words("q0x")), session="s0"), 6, 0, ())
    assert finder.misses.starts.requests == 7
