"""A judge: four candidates' reports and a record; one report agrees with the record in every point.

Consistency is that the same candidates get the same verdict, whatever KV it was computed from. In the earlier revision
the record had another value, so that another candidate was right.
"""

from __future__ import annotations

from typing import Final

from sembench.workload.seeded import Draws
from sembench.workload.tasks.base import ANIMALS, CITIES, MACHINES, Change, Draft, Writer, sections_with

_CANDIDATES: Final = 4


def judge(draws: Draws, words: int) -> Draft:
    writer = Writer(draws)
    (person,) = writer.people(1)
    names = [animal.capitalize() for animal in draws.shuffled(ANIMALS)[:_CANDIDATES]]
    machine, *other_machines = draws.shuffled(MACHINES)
    city, *other_cities = draws.shuffled(CITIES)
    year, *other_years = draws.shuffled([str(year) for year in range(1962, 1999)])
    right = (city, machine, year)
    # The second candidate agrees with the earlier revision, the others with neither.
    earlier = (other_cities[0], machine, year)
    stories = (right, earlier, (city, other_machines[0], year), (city, machine, other_years[0]))
    record = _story(person, *right, "According to the record,")
    order = draws.shuffled(range(_CANDIDATES))
    facts = [[record], *([_story(person, *stories[place], "I found that")] for place in order)]
    headings = ["Record of the archive.", *(f"Report of candidate {names[place]}." for place in order)]
    return Draft(
        passages=sections_with(draws, writer, words, facts, headings),
        question=(
            f"Which candidate's report about {person} agrees with the record of the archive in every point? Answer "
            "with the candidate's name."
        ),
        other_question=f"What did {person} build?",
        opening=" The report that agrees with the record is that of candidate",
        answers=(names[0],),
        score="choice",
        choices=tuple(sorted(names)),
        changes=(Change(record, right[0], earlier[0]),),
        earlier_answer=names[1],
    )


def _story(person: str, city: str, machine: str, year: str, source: str) -> str:
    return f"{source} {person} built a {machine} in {city} in the year {year}."
