"""The donor is an earlier revision: different line breaks, or 1 % (5 %) of the words changed, removed or added."""

from __future__ import annotations

import re
from typing import Final

from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext
from sembench.workload.transforms.edits import Edit, edited_donor_item

_SPACE: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"\w+")


def fuzzy_edit(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    """Formatting only: the donor has one sentence per line, and single spaces otherwise."""
    edits = []
    for match in _SPACE.finditer(record.context):
        ends_sentence = match.start() > 0 and record.context[match.start() - 1] in ".!?"
        wanted = "\n" if ends_sentence else " "
        if match.group() != wanted:
            edits.append(Edit(match.start(), match.end(), wanted))
    if not edits:
        return Skipped("the document has no white space that could be formatted differently")
    return edited_donor_item(record, "fuzzy_edit", edits, hard_negative=False)


def one_percent(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    return _edit_words(record, context, "fuzzy_edit_1pct", 0.01)


def five_percent(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    return _edit_words(record, context, "fuzzy_edit_5pct", 0.05)


def _edit_words(record: SourceRecord, context: TransformContext, name: str, rate: float) -> WorkloadItem | Skipped:
    words = list(_WORD.finditer(record.context))
    vocabulary = sorted({word.group() for word in words})
    if len(vocabulary) < 2:
        return Skipped("the document has fewer than two different words")
    draws = context.draws(record, name)
    count = max(1, round(rate * len(words)))
    edits = []
    for index in sorted(draws.shuffled(range(len(words)))[:count]):
        word = words[index]
        drawn = draws.choose(vocabulary)
        other = drawn if drawn != word.group() else vocabulary[vocabulary.index(drawn) - 1]
        kind = draws.below(3)
        replacement = (other, "", f"{word.group()} {other}")[kind]
        edits.append(Edit(word.start(), word.end(), replacement))
    return edited_donor_item(record, name, edits, hard_negative=False)
