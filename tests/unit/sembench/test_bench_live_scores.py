"""What an answer is worth: each score by itself, and the laws all of them keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembench.scoring.words import Scores, is_kept, is_right, option_of_answer, option_of_reference, score, words_of

WORDS = st.lists(st.sampled_from(["ferry", "port", "storm", "pier", "fog"]), min_size=1, max_size=12)


def scored(answer: str, *references: str) -> Scores:
    found = score(answer, references)
    assert found is not None
    return found


def test_words_know_no_case_punctuation_or_article() -> None:
    assert words_of("The  Ferry, at 9:30 - an_hour!") == ("ferry", "at", "9", "30", "hour")
    assert words_of("A") == ("a",)
    assert words_of("渡船 at 港") == ("渡", "船", "at", "港")


def test_each_score_counts_its_own_thing() -> None:
    found = scored("storm kept ferry in port", "ferry in port")
    assert found.token_recall == 1.0
    assert found.f1 == pytest.approx(2 * 3 / (5 + 3))
    assert found.rouge_l == pytest.approx(2 * 3 / (5 + 3))
    assert found.exact_match is False
    shuffled = scored("port in ferry", "ferry in port")
    assert shuffled.f1 == 1.0
    assert shuffled.rouge_l == pytest.approx(1 / 3)


def test_repeating_a_word_earns_it_once() -> None:
    assert scored("ferry ferry ferry", "ferry port").token_recall == 0.5


def test_the_best_reference_counts() -> None:
    assert scored("the harbour master", "captain", "Harbour Master.").exact_match is True


def test_nothing_to_score_against_is_none_and_an_empty_answer_is_zero() -> None:
    assert score("ferry", ()) is None
    assert score("ferry", ("", " ... ")) is None
    assert scored("", "ferry").rouge_l == 0.0


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        ("B", "B"),
        ("(C) because", "C"),
        ("D. The ferry", "D"),
        ("The answer is A", "A"),
        ("Answer: (B)", "B"),
        ("I choose option C here", "C"),
        ("A ferry runs at dawn", None),
        ("The answer is a ferry", None),
        ("The answer is A ferry that runs", None),
        ("", None),
    ],
)
def test_options_are_read_from_answers(answer: str, option: str | None) -> None:
    assert option_of_answer(answer) == option


def test_options_are_references_only_when_nothing_else_is_there() -> None:
    assert option_of_reference(" (B) ") == "B"
    assert option_of_reference("B.") == "B"
    assert option_of_reference("Bergen") is None


def test_multiple_choice_is_right_by_the_option_alone() -> None:
    wrong = scored("The answer is B, as C says", "C")
    assert wrong.token_recall == 1.0
    assert is_right(wrong, ("C",), 0.5) is False
    assert is_right(scored("(A)", "A"), ("A",), 0.5) is True


def test_quality_is_recall_of_answers_and_order_of_cold_ones() -> None:
    shuffled = scored("port in ferry", "ferry in port")
    assert is_right(shuffled, ("ferry in port",), 0.6) is True
    assert is_kept(shuffled, 0.6) is False


@given(WORDS, WORDS)
def test_scores_lie_between_0_and_1_and_agree_on_identity(answer: list[str], reference: list[str]) -> None:
    found = scored(" ".join(answer), " ".join(reference))
    for value in (found.token_recall, found.f1, found.rouge_l):
        assert 0.0 <= value <= 1.0
    assert found.rouge_l <= found.f1 + 1e-12
    assert found.exact_match == (answer == reference)
    assert (found.rouge_l == 1.0) == (answer == reference)
