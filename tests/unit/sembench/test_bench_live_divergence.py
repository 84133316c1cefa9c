"""KL over the union of two top-k lists: its laws, and that nothing behind the first differing token counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembench.http.reply import TokenLogprobs
from sembench.live.divergence import diverge, kl_over_union

TOKENS = "abcdefgh"


@st.composite
def tops(draw: st.DrawFn) -> dict[str, float]:
    """The k likeliest tokens of some distribution over eight."""
    weights = draw(st.lists(st.floats(0.001, 1.0), min_size=8, max_size=8))
    total = sum(weights)
    ranked = sorted(zip(TOKENS, weights, strict=True), key=lambda entry: -entry[1])
    return {token: math.log(weight / total) for token, weight in ranked[: draw(st.integers(1, 8))]}


def reply(*tokens: str, logprob: float = -0.1) -> list[TokenLogprobs]:
    return [TokenLogprobs(token, logprob, {token: logprob, "other": -3.0}) for token in tokens]


@given(tops(), tops())
def test_kl_is_never_negative_and_finite(cold: dict[str, float], warm: dict[str, float]) -> None:
    assert 0.0 <= kl_over_union(cold, warm) < 100.0


@given(tops())
def test_equal_distributions_do_not_differ(top: dict[str, float]) -> None:
    assert kl_over_union(top, dict(reversed(top.items()))) == pytest.approx(0.0, abs=1e-9)


def test_full_distributions_give_the_textbook_value() -> None:
    cold = {"a": math.log(0.75), "b": math.log(0.25)}
    warm = {"a": math.log(0.5), "b": math.log(0.5)}
    wanted = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert kl_over_union(cold, warm) == pytest.approx(wanted, rel=1e-6)


def test_even_one_named_token_shows_a_shift() -> None:
    assert kl_over_union({"a": math.log(0.9)}, {"a": math.log(0.5)}) > 0.1


def test_a_token_only_one_side_names_counts() -> None:
    cold = {"a": math.log(0.6), "b": math.log(0.39)}
    near = {"a": math.log(0.6), "c": math.log(0.2)}
    assert kl_over_union(cold, near) > 0.05


def test_impossible_logprobs_break_nothing() -> None:
    assert kl_over_union({"a": 900.0}, {"a": -math.inf, "b": math.nan}) >= 0.0


def test_positions_behind_the_first_difference_are_not_compared() -> None:
    cold, warm = reply("x", "y", "z", "z"), reply("x", "y", "w", "q")
    found = diverge(cold, warm)
    assert found is not None
    assert found.agreed_tokens == 2
    assert len(found.kl) == 3  # at the third position the history is still the same
    assert found.kl[:2] == (0.0, 0.0)
    assert found.kl[2] > 0.0


@pytest.mark.parametrize("swap", [False, True])
def test_an_answer_that_ends_early_diverges_where_it_ends(swap: bool) -> None:
    whole, broken = reply(*"abcdefgh"), reply("a")
    found = diverge(broken, whole) if swap else diverge(whole, broken)
    assert found is not None
    assert (found.agreed_tokens, len(found.kl)) == (1, 2)
    assert found.kl[0] == 0.0
    assert found.kl[1] > 1.0


def test_the_surer_the_other_side_continued_the_farther_apart_is_an_early_end() -> None:
    sure, unsure = (diverge(reply("x", "y", logprob=p), reply("x", logprob=p)) for p in (-0.06, -2.5))
    assert sure is not None
    assert unsure is not None
    assert sure.kl[-1] > unsure.kl[-1] > 0.0


def test_an_early_end_without_log_probabilities_is_still_where_the_answers_part() -> None:
    bare = [TokenLogprobs("x", -0.1)]
    found = diverge([*bare, *bare], bare)
    assert found is not None
    assert (found.agreed_tokens, found.kl) == (1, ())


def test_without_logprobs_nothing_was_compared() -> None:
    assert diverge((), reply("x")) is None
    bare = [TokenLogprobs("x", -0.1)]
    found = diverge(bare, bare)
    assert found is not None
    assert found.kl == ()
    assert found.agreed_tokens == 1
