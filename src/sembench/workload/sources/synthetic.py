"""Documents of invented words with Zipf-like frequencies, of any number and length: for tests of scale, not meaning."""

from __future__ import annotations

from typing import Final

from sembase.errors import ConfigurationError
from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws
from sembench.workload.sources.base import SourceRequest

_WORDS_PER_DOCUMENT: Final = {"synthetic_short": 600, "synthetic_long": 4000}
_DEFAULT_DOCUMENTS: Final = 20
_VOCABULARY: Final = 4000
_SYLLABLES: Final = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")


def read_synthetic(request: SourceRequest) -> list[SourceRecord]:
    wanted = request.datasets or tuple(_WORDS_PER_DOCUMENT)
    if unknown := sorted(set(wanted) - set(_WORDS_PER_DOCUMENT)):
        known = ", ".join(_WORDS_PER_DOCUMENT)
        raise ConfigurationError(f"synthetic-v1 has no dataset {', '.join(unknown)}; it has {known}")
    count = _DEFAULT_DOCUMENTS if request.max_items_per_dataset is None else request.max_items_per_dataset
    words = _vocabulary()
    return [_record(dataset, index, request.seed, words) for dataset in wanted for index in range(count)]


def _vocabulary() -> list[str]:
    """Every word once, in a fixed order; the rank decides how often it is used."""
    draws = Draws("sembench-synthetic-vocabulary")
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        words["".join(draws.choose(_SYLLABLES) for _ in range(2 + draws.below(3)))] = None
    return list(words)


def _record(dataset: str, index: int, seed: int, words: list[str]) -> SourceRecord:
    draws = Draws("sembench-synthetic", seed, dataset, index)
    key, value = f"K{draws.below(10**9):09d}", f"{draws.below(10**9):09d}"
    count = _WORDS_PER_DOCUMENT[dataset]
    needle_at = draws.below(count)
    parts: list[str] = []
    since_stop = 0
    for position in range(count):
        if position == needle_at:
            parts.append(f"The value of {key} is {value}.")
        # The cube of the draw favours low ranks; exact Zipf exponents do not matter here.
        word = words[int(len(words) * draws.uniform() ** 3)]
        since_stop += 1
        if since_stop > 8 and draws.uniform() < 0.15:
            parts.append(word + (".\n\n" if draws.uniform() < 0.2 else "."))
            since_stop = 0
        else:
            parts.append(word)
    return SourceRecord(
        dataset=dataset,
        source_id=f"{seed}-{index:05d}",
        context=" ".join(parts).replace("\n\n ", "\n\n"),
        question=f"What is the value of {key}?",
        answers=(value,),
        metadata={"profile": "synthetic-v1"},
    )
