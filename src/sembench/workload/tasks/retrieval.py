"""Retrieval from made-up facts in prose: where a person lives, one value, several values, a quotation, a count."""

from __future__ import annotations

from typing import Final

from sembench.workload.record import Question
from sembench.workload.seeded import Draws
from sembench.workload.tasks.base import (
    CITIES,
    SECTIONS,
    Change,
    Draft,
    Writer,
    creatures,
    dealt,
    numbers,
    sections_with,
)

_KEYS: Final = 3 * SECTIONS
_VALUES: Final = 3
_QUOTES: Final = SECTIONS


def plain_fact(draws: Draws, words: int) -> Draft:
    """Five people and where they live, each said twice: a model of 135M parameters can answer that."""
    writer = Writer(draws)
    people = writer.people(SECTIONS)
    old, *cities = draws.shuffled(CITIES)[: SECTIONS + 1]
    lives = [f"{person} lives in {city}." for person, city in zip(people, cities, strict=True)]
    lived = [f"For ten years {person} has lived in {city}." for person, city in zip(people, cities, strict=True)]
    facts = [f"{now} {since}" for now, since in zip(lives, lived, strict=True)]
    asked, other, *more = [
        Question(f"Where does {person} live?", f" {person} lives in", (city,))
        for person, city in zip(people, cities, strict=True)
    ]
    return Draft(
        passages=sections_with(draws, writer, words, dealt(draws, facts)),
        question=asked.text,
        other_question=other.text,
        more_questions=tuple(more),
        opening=asked.opening,
        answers=asked.answers,
        score="choice",
        choices=tuple(sorted((old, *cities))),
        changes=(Change(lives[0], cities[0], old), Change(lived[0], cities[0], old)),
        earlier_answer=old,
    )


def key_value(draws: Draws, words: int) -> Draft:
    """Fifteen codes, one of them asked for."""
    writer = Writer(draws)
    keys = creatures(draws, _KEYS)
    old, *values = numbers(draws, _KEYS + 1)
    facts = [_code(key, value) for key, value in zip(keys, values, strict=True)]
    passages = sections_with(draws, writer, words, dealt(draws, facts))
    return Draft(
        passages=passages,
        question=f"What is the code of the {keys[0]}?",
        other_question=f"What is the code of the {keys[1]}?",
        opening=f" The code of the {keys[0]} is",
        answers=(values[0],),
        score="digits",
        changes=(Change(facts[0], values[0], old),),
        earlier_answer=old,
    )


def _code(key: str, value: str) -> str:
    return f"The code of the {key} is {value}."


def multi_value(draws: Draws, words: int) -> Draft:
    """Three codes of one key in three sections, among others with one code each."""
    writer = Writer(draws)
    keys = creatures(draws, 2 * SECTIONS)
    old, *values = numbers(draws, _VALUES + 2 * SECTIONS)
    wanted, others = values[:_VALUES], values[_VALUES:]
    own = [_one_code(keys[0], value) for value in wanted]
    facts = dealt(draws, [_one_code(key, value) for key, value in zip(keys[1:], others, strict=True)])
    for place, fact in zip(draws.shuffled(range(SECTIONS))[:_VALUES], own, strict=True):
        facts[place] = draws.shuffled([*facts[place], fact])
    return Draft(
        passages=sections_with(draws, writer, words, facts),
        question=f"The {keys[0]} has {_VALUES} codes. Which are they? Answer with the codes, separated by commas.",
        other_question=f"Which code does the {keys[1]} have?",
        opening=f" The codes of the {keys[0]} are",
        answers=(", ".join(wanted),),
        score="values",
        changes=(Change(own[0], wanted[0], old),),
        earlier_answer=", ".join([old, *wanted[1:]]),
    )


def _one_code(key: str, value: str) -> str:
    return f"One code of the {key} is {value}."


def quote(draws: Draws, words: int) -> Draft:
    """Five people, each with one written sentence."""
    writer = Writer(draws)
    people = writer.people(_QUOTES)
    old, *written = (writer.sentence() for _ in range(_QUOTES + 1))
    facts = [f'{person} wrote: "{sentence}"' for person, sentence in zip(people, written, strict=True)]
    return Draft(
        passages=sections_with(draws, writer, words, dealt(draws, facts)),
        question=f"Quote what {people[0]} wrote, word for word.",
        other_question=f"Quote what {people[1]} wrote, word for word.",
        opening=f' {people[0]} wrote: "',
        answers=(written[0],),
        score="quote",
        changes=(Change(facts[0], written[0], old),),
        earlier_answer=old,
    )


def count(draws: Draws, words: int) -> Draft:
    """Sightings of four animals, each animal at most once in a city; one sighting was another animal's before."""
    writer = Writer(draws)
    keys = creatures(draws, 4)
    cities = draws.shuffled(CITIES)
    seen = 2 + draws.below(4)
    own = [_seen(keys[0], city) for city in cities[:seen]]
    others = [_seen(key, city) for key in keys[1:] for city in draws.shuffled(cities[seen:])[:3]]
    return Draft(
        passages=sections_with(draws, writer, words, dealt(draws, [*own, *others])),
        question=f"In how many cities was the {keys[0]} seen? Answer with the number.",
        other_question=f"In how many cities was the {keys[1]} seen?",
        opening=f" The number of cities where the {keys[0]} was seen is",
        answers=(str(seen),),
        score="number",
        changes=(Change(own[0], keys[0], keys[1]),),
        earlier_answer=str(seen - 1),
    )


def _seen(key: str, city: str) -> str:
    return f"The {key} was seen in {city}."
