"""Invented prose: sentence templates with the names and things of a subject, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sembench.workload.seeded import Draws

_MONTHS: Final = ("January", "March", "April", "June", "August", "October", "November")
FRAMES: Final = (
    "In {month}, {person} inspected the {thing} at {place} and recorded {n} {unit}.",
    "The {thing} was replaced after {n} {unit}, although {person} had asked for a later date.",
    "Nobody at {place} could explain why the {thing} had lost {n} {unit} since {month}.",
    "According to {person}, the {thing} must not be moved while {other} is under repair.",
    "A second reading of the {thing} gave {n} {unit}; the first had been wrong by a tenth.",
    "{person} wrote that {other} would need attention before the {thing} is used again.",
    "Costs for the {thing} rose to {n} crowns, which {place} paid in {month}.",
    "When {other} failed, the crew led by {person} switched to the {thing} within {n} minutes.",
    "The register of {place} lists the {thing} under number {n}, next to {other}.",
    "It is agreed that {person} keeps the key of the {thing} until {month}.",
    "Between {place} and the depot, {n} {unit} were lost because the {thing} was not sealed.",
    "Visitors are told about {other}, but the {thing} has never been shown to them.",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a text is about. Texts of different subjects are similar in style without sharing sixteen words in a row."""

    places: tuple[str, ...]
    people: tuple[str, ...]
    things: tuple[str, ...]
    units: tuple[str, ...]


def sentence_of(frame: str, subject: Subject, draws: Draws) -> str:
    thing, other = draws.shuffled(subject.things)[:2]
    sentence = frame.format(
        month=draws.choose(_MONTHS),
        person=draws.choose(subject.people),
        place=draws.choose(subject.places),
        thing=thing,
        other=f"the {other}",
        n=11 + draws.below(9800),
        unit=draws.choose(subject.units),
    )
    return sentence[0].upper() + sentence[1:]
