"""A donor unrelated to the recipient. Anything that is planned or confirmed here is a false match."""

from __future__ import annotations

import re
from typing import Final

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import analyst_prompt, base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext, make_item

_SHINGLE_WORDS: Final = 16
_TRIES: Final = 24
_WORD: Final = re.compile(r"\w+|[^\w\s]")


def negative_control(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    others = [other for other in context.corpus if other.context != record.context]
    if not others:
        return Skipped("the corpus has no second document")
    draws = context.draws(record, "negative_control")
    foreign = draws.shuffled([other for other in others if other.dataset != record.dataset])
    local = draws.shuffled([other for other in others if other.dataset == record.dataset])
    own = _shingles(record.context)
    for other in [*foreign[:_TRIES], *local[:_TRIES]]:
        if own.isdisjoint(_shingles(other.context)):
            return make_item(
                record,
                "negative_control",
                base_prompt(record) if record.verbatim else analyst_prompt(record),
                [base_prompt(other)],
                exact=False,
                semantic=False,
                materialize=False,
                negative=True,
                extra={"negative_dataset": other.dataset, "negative_source_id": other.source_id},
            )
    return Skipped(f"every other document tried shares {_SHINGLE_WORDS} words in a row with this one")


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return {tuple(words[i : i + _SHINGLE_WORDS]) for i in range(max(1, len(words) - _SHINGLE_WORDS + 1))}
