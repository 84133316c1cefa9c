"""The draft of a task and its source record; names and prose that all tasks draw from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sembase.errors import ContractError
from sembench.workload.prose import FRAMES, Subject, sentence_of
from sembench.workload.record import Question, SourceRecord
from sembench.workload.seeded import Draws

SECTIONS: Final = 5
_NAMES: Final = """\
amber brisk cedar dusky early faint gilded hollow ivory jolly keen lofty mellow noble olive plain quiet rusty tidy
falcon otter badger heron lynx marten osprey plover raven salmon stoat thrush viper walrus weasel beaver condor gecko
Anna Peter Laura Thomas Maria George Helen Victor Julia Martin Clara Oscar Emma Henry Nora Felix Alice Simon Greta Paul
Bennett Fischer Morgan Collins Rossi Novak Parker Sullivan Larsen Duarte Hoffman Kelly Moreau Shaw Tanaka Weber Quinn
Toronto Lisbon Oslo Denver Prague Madrid Vienna Boston Dublin Chicago Warsaw Seattle Athens Berlin Geneva Houston Milan
pump valve crane furnace conveyor boiler turbine antenna press kiln lathe gantry winch compressor dynamo sluice hoist
"""
ADJECTIVES, ANIMALS, FIRST_NAMES, LAST_NAMES, CITIES, MACHINES = (tuple(line.split()) for line in _NAMES.splitlines())
_UNITS: Final = ("litres", "hours", "crates", "metres", "volts", "pallets")


@dataclass(frozen=True, slots=True)
class Change:
    """In the earlier revision ``sentence``, which occurs once in the document, has ``before`` instead of ``now``."""

    sentence: str
    now: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task before it is a record. ``before`` is the part of ``opening`` that belongs to the answer.

    ``more_questions`` have the same score and choices; ``changes`` decide none of their answers.
    """

    passages: Sequence[str]
    question: str
    other_question: str
    answers: tuple[str, ...]
    score: str
    changes: tuple[Change, ...]
    earlier_answer: str
    opening: str = ""
    before: str = ""
    choices: tuple[str, ...] = ()
    more_questions: tuple[Question, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


DraftTask = Callable[[Draws, int], Draft]
"""Draws and the length of the document in words, about, in; a draft out."""


def record_of(draft: Draft, dataset: str, source_id: str) -> SourceRecord:
    context = "\n\n".join(draft.passages)
    optional = {"answer_before": draft.before, "choices": list(draft.choices), **draft.extra}
    return SourceRecord(
        dataset=dataset,
        source_id=source_id,
        context=context,
        question=draft.question,
        answers=draft.answers,
        passages=tuple(draft.passages),
        other_questions=(draft.other_question,),
        more_questions=draft.more_questions,
        opening=draft.opening,
        earlier_edits=tuple(sorted(_edit(context, change) for change in draft.changes)),
        earlier_answer=draft.earlier_answer,
        metadata={
            "profile": "answers",
            "score": draft.score,
            **{key: value for key, value in optional.items() if value},
        },
    )


def _edit(context: str, change: Change) -> tuple[int, int, str]:
    if context.count(change.sentence) != 1 or change.sentence.count(change.now) != 1:
        raise ContractError(f"{change.now!r} in {change.sentence!r} is not at one place of the document")
    start = context.index(change.sentence) + change.sentence.index(change.now)
    return start, start + len(change.now), change.before


class Writer:
    """Prose without facts that a task asks for. No sentence occurs twice in a document."""

    def __init__(self, draws: Draws) -> None:
        people = zip(draws.shuffled(FIRST_NAMES), draws.shuffled(LAST_NAMES), strict=False)
        self._people = [f"{first} {last}" for first, last in people]
        self._draws = draws
        machines = draws.shuffled(MACHINES)
        places = tuple(f"the {city} works" for city in draws.shuffled(CITIES)[:4])
        self._subject = Subject(places, tuple(self.people(4)), tuple(machines[:7]), _UNITS)
        self._used: set[str] = set()

    def people(self, count: int) -> list[str]:
        """Different names on every call; the prose has four of its own."""
        taken, self._people = self._people[:count], self._people[count:]
        return taken

    def sentence(self) -> str:
        while True:
            sentence = sentence_of(self._draws.choose(FRAMES), self._subject, self._draws)
            if sentence not in self._used:
                self._used.add(sentence)
                return sentence

    def sentences(self, words: int) -> list[str]:
        written: list[str] = []
        left = words
        while left > 0:
            written.append(self.sentence())
            left -= len(written[-1].split())
        return written


def sections_with(
    draws: Draws, writer: Writer, words: int, facts: Sequence[Sequence[str]], headings: Sequence[str] = ()
) -> list[str]:
    """One passage per entry of ``facts``: its facts in their order at drawn places of prose."""
    budget = max(0, words - sum(len(fact.split()) for own in facts for fact in own)) // max(1, len(facts))
    passages = []
    for number, own in enumerate(facts):
        sentences = writer.sentences(budget)
        places = sorted(draws.below(len(sentences) + 1) for _ in own)
        for fact, place in reversed(list(zip(own, places, strict=True))):
            sentences.insert(place, fact)
        heading = headings[number] if headings else f"Notes from {draws.choose(CITIES)}, sheet {number + 1}."
        passages.append(f"{heading}\n{' '.join(sentences)}")
    return passages


def creatures(draws: Draws, count: int) -> list[str]:
    """Different pairs of an adjective and an animal; no two share either word, as far as the words suffice."""
    adjectives, animals = draws.shuffled(ADJECTIVES), draws.shuffled(ANIMALS)
    width = min(len(adjectives), len(animals))
    return [f"{adjectives[i % width]} {animals[(i + i // width) % width]}" for i in range(count)]


def numbers(draws: Draws, count: int) -> list[str]:
    """Different numbers of six digits. Any two that follow each other differ in their first digit."""
    found: list[str] = []
    while len(found) < count:
        number = str(100_000 + draws.below(900_000))
        if number not in found and (not found or number[0] != found[-1][0]):
            found.append(number)
    return found


def dealt(draws: Draws, facts: Sequence[str], sections: int = SECTIONS) -> list[list[str]]:
    """Facts in a drawn order, spread evenly over the sections."""
    order = draws.shuffled(facts)
    return [order[start::sections] for start in range(sections)]
