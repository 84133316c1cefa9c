"""Plain facts of the fidelity bench: the answer is in one section and nowhere else, lengths are as requested."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.fidelity.facts import FORMS, Facts, make_facts

NUMBERS = range(2 * len(FORMS))


def encode(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def decode(ids: tuple[int, ...]) -> str:
    return bytes(ids).decode()


def facts(number: int, room: int = 4000) -> Facts:
    random = np.random.default_rng(number)
    return make_facts(encode, lambda tokens: encode("x" * tokens), room, 5, number, random)


def answer_of(made: Facts) -> str:
    return decode(made.reference[: made.answer_tokens])


def lead_of(made: Facts) -> str:
    """The text the model continues."""
    return decode(made.tail).partition("Answer: ")[2]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_answer_is_in_the_wanted_section_only(number: int) -> None:
    made = facts(number)
    assert [i for i, section in enumerate(made.sections) if answer_of(made) in decode(section)] == [made.wanted]
    assert answer_of(made) not in decode(made.tail)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_question_ends_in_the_words_before_the_answer(number: int) -> None:
    made = facts(number)
    assert decode(made.tail).startswith("\n\nQuestion: ")
    assert f"\n{lead_of(made)}{answer_of(made)}." in decode(made.sections[made.wanted])


@pytest.mark.parametrize("number", NUMBERS)
def test_before_has_another_fact_in_the_same_place(number: int) -> None:
    made = facts(number)
    assert len(made.before) == len(made.sections[made.wanted])
    assert lead_of(made) in decode(made.before)
    assert answer_of(made) not in decode(made.before)


@pytest.mark.parametrize(("number", "forms"), [(2, 5), (3, 1)])
def test_facts_are_of_several_forms_or_of_one(number: int, forms: int) -> None:
    texts = [decode(section) for section in facts(number).sections]
    starts = ("lives in", "bought a", "favourite city", "repaired the", "born in")
    assert len({start for start in starts for text in texts if start in text}) == forms


def test_sections_fill_the_room_evenly() -> None:
    made = facts(1)
    lengths = {len(section) for section in made.sections}
    assert lengths == {(4000 - len(made.tail)) // 5}


def test_the_same_number_makes_the_same_facts() -> None:
    assert facts(2) == facts(2)
    assert facts(2) != facts(4)
