"""A field early in the document decides a conclusion later in it; in the earlier revision the field was another one.

``stated``: the later text names the conclusion, so a revision changes both. ``by_rule``: the later text refers to the
conclusion without naming it, so a revision changes the field alone and every later token is the same. KV computed over
the old field may still hold the old conclusion there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sembench.workload.seeded import Draws
from sembench.workload.tasks.base import ANIMALS, CITIES, Change, Draft, Writer, sections_with

_COLOURS: Final = ("red", "blue", "green", "white", "black", "yellow")
_CRATES: Final = 3
_REFERENCES: Final = (
    "The crate {crate} was brought to the hall that its seal prescribes.",
    "Two guards check the hall of the crate {crate} every night.",
    "The crate {crate} has not left its hall since then.",
)


def stated(draws: Draws, words: int) -> Draft:
    return _draft(draws, words, is_stated=True)


def by_rule(draws: Draws, words: int) -> Draft:
    return _draft(draws, words, is_stated=False)


def _draft(draws: Draws, words: int, *, is_stated: bool) -> Draft:
    writer = Writer(draws)
    crates = [animal.capitalize() for animal in draws.shuffled(ANIMALS)[:_CRATES]]
    halls = dict(zip(_COLOURS, draws.shuffled(CITIES), strict=False))
    old, *colours = draws.shuffled(_COLOURS)[: _CRATES + 1]
    fields = [f"The seal of the crate {crate} is {colour}." for crate, colour in zip(crates, colours, strict=True)]
    rules = [f"A crate with a {colour} seal belongs in hall {hall}." for colour, hall in halls.items()]
    facts = [fields, rules, *_later(draws, crates, colours, halls if is_stated else None)]
    changes = [Change(fields[0], colours[0], old)]
    if is_stated:
        changes.append(Change(_statement(crates[0], halls[colours[0]]), halls[colours[0]], halls[old]))
    return Draft(
        passages=sections_with(draws, writer, words, facts),
        question=f"In which hall is the crate {crates[0]}? Answer with the name of the hall.",
        other_question=f"Which seal does the crate {crates[1]} have?",
        opening=f" The crate {crates[0]} is in hall",
        answers=(halls[colours[0]],),
        score="choice",
        choices=tuple(sorted(halls.values())),
        changes=tuple(changes),
        earlier_answer=halls[old],
    )


def _later(draws: Draws, crates: list[str], colours: list[str], halls: Mapping[str, str] | None) -> list[list[str]]:
    """Three sections that refer to every crate's hall; with ``halls`` the last one names them."""
    sections = [[form.format(crate=crate) for crate in draws.shuffled(crates)] for form in _REFERENCES]
    if halls is not None:
        sections[-1] += [_statement(crate, halls[colour]) for crate, colour in zip(crates, colours, strict=True)]
    return sections


def _statement(crate: str, hall: str) -> str:
    return f"So the crate {crate} is in hall {hall}."
