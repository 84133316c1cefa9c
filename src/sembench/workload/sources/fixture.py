"""A small deterministic corpus that needs no download: six documents on different subjects, no paragraph repeated.

The texts are invented. Sentences follow a few templates with each document's own names and things, so that documents
are similar in style without sharing sixteen words in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sembase.errors import ConfigurationError
from sembench.workload.prose import FRAMES, Subject, sentence_of
from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws
from sembench.workload.sources.base import SourceRequest

DATASETS: Final = ("fixture_reports", "fixture_records")
_PARAGRAPHS: Final = 9


@dataclass(frozen=True, slots=True)
class _Document:
    dataset: str
    name: str
    title: str
    places: tuple[str, ...]
    people: tuple[str, ...]
    things: tuple[str, ...]
    units: tuple[str, ...]
    question: str
    answer: str
    fact: str
    new_question: str


_DOCUMENTS: Final = (
    _Document(
        "fixture_reports",
        "ferry",
        "Winter report of the Skarholm ferry office",
        ("Skarholm", "the Vester quay", "Lund Sound"),
        ("Marit Aune", "Captain Olav Rygg", "Signe Dahl"),
        ("port engine", "bow ramp", "radar mast", "ice fender", "cargo winch", "fuel manifold", "lifeboat davit"),
        ("litres", "nautical miles", "running hours"),
        "Who ordered the ferry to stay in port during the February storm?",
        "Harbour master Ingrid Solvang",
        "In the February storm the ferry stayed in port for 31 hours on the order of Harbour master Ingrid Solvang.",
        "Which parts of the ferry were replaced?",
    ),
    _Document(
        "fixture_reports",
        "seedvault",
        "Audit of the Bergamot seed vault",
        ("the north gallery", "Bergamot Hill", "cold room seven"),
        ("Tomasz Wilk", "Professor Adaeze Obi", "Lena Fuchs"),
        (
            "barley accession",
            "drying cabinet",
            "humidity logger",
            "foil packet press",
            "backup chiller",
            "rye collection",
        ),
        ("seed lots", "grams", "germinated samples"),
        "What share of the barley samples germinated in the control test?",
        "87 percent",
        "In the control test 87 percent of the barley samples germinated, four points fewer than ten years before.",
        "What happened to the backup chiller?",
    ),
    _Document(
        "fixture_reports",
        "signals",
        "Signalling works on the Corrie branch line",
        ("Corrie Junction", "the Glen viaduct", "Ardle station"),
        ("Hamish Baird", "Engineer Priya Nair", "Douglas Orr"),
        ("axle counter", "points motor", "relay cabinet", "level crossing barrier", "fibre duct", "distant signal"),
        ("sleepers", "metres of cable", "test trains"),
        "How long may the Glen viaduct be closed for the works?",
        "eleven nights",
        "The regulator allowed the Glen viaduct to be closed for eleven nights and not one more.",
        "Who keeps the keys?",
    ),
    _Document(
        "fixture_records",
        "pharmacy",
        "Stock review of the Saint Brannoc hospital pharmacy",
        ("ward four", "Saint Brannoc", "the dispensary"),
        ("Sister Joan Teale", "Doctor Emeka Ude", "Ruth Pascoe"),
        ("insulin shelf", "infusion pump", "controlled cupboard", "label printer", "vaccine fridge", "saline pallet"),
        ("ampoules", "doses", "boxes"),
        "Which medicine was withdrawn from ward four?",
        "cefalorin",
        "After two rashes the medicine cefalorin was withdrawn from ward four and 212 ampoules were sent back.",
        "What did the vaccine fridge record?",
    ),
    _Document(
        "fixture_records",
        "observatory",
        "Night log of the Tamarugal observatory",
        ("the summit dome", "Tamarugal", "the spectrograph hall"),
        ("Ximena Rojas", "Director Paul Achterberg", "Wen Jiao"),
        ("secondary mirror", "guide camera", "dome shutter", "helium compressor", "calibration lamp", "coating tank"),
        ("exposures", "arcseconds", "kelvin"),
        "What stopped the observations in the third week?",
        "a cracked shutter gear",
        "Observations stopped in the third week because of a cracked shutter gear that took 9 days to replace.",
        "How was the secondary mirror treated?",
    ),
    _Document(
        "fixture_records",
        "licence",
        "Licence file of the Orsini type foundry",
        ("the Turin office", "Orsini", "the punch archive"),
        ("Chiara Bassi", "Counsel Hugo Lindqvist", "Amina Saleh"),
        ("matrix case", "italic master", "web licence", "specimen book", "casting machine", "kerning table"),
        ("glyphs", "copies", "impressions"),
        "Until when may the licensee print the specimen book?",
        "30 September 2031",
        "The licensee may print the specimen book until 30 September 2031, and the right does not pass to heirs.",
        "Who signed for the foundry?",
    ),
)


def read_fixture(request: SourceRequest) -> list[SourceRecord]:
    wanted = request.datasets or DATASETS
    if unknown := sorted(set(wanted) - set(DATASETS)):
        raise ConfigurationError(f"the fixture has no dataset {', '.join(unknown)}; it has {', '.join(DATASETS)}")
    records: list[SourceRecord] = []
    for dataset in wanted:
        records += request.limited(_record(document) for document in _DOCUMENTS if document.dataset == dataset)
    return records


def _record(document: _Document) -> SourceRecord:
    """The corpus is a constant: it does not depend on ``--seed``, which belongs to the transforms."""
    draws = Draws("sembench-fixture", document.name)
    subject = Subject(document.places, document.people, document.things, document.units)
    paragraphs = [document.title + "."]
    used: set[str] = set()
    fact_at = _PARAGRAPHS - 2  # late in the text, so that a builder that drops the tail would lose it
    for number in range(_PARAGRAPHS):
        frames = draws.shuffled(FRAMES)[:4]
        sentences = [f"Section {number + 1} concerns the {draws.choose(document.things)}."]
        for frame in frames:
            sentence = sentence_of(frame, subject, draws)
            while sentence in used:
                sentence = sentence_of(frame, subject, draws)
            used.add(sentence)
            sentences.append(sentence)
        if number == fact_at:
            sentences.insert(2, document.fact)
        paragraphs.append(" ".join(sentences))
    return SourceRecord(
        dataset=document.dataset,
        source_id=document.name,
        context="\n\n".join(paragraphs),
        question=document.question,
        answers=(document.answer,),
        other_questions=(document.new_question,),
        metadata={"profile": "fixture"},
    )
