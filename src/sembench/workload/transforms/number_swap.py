"""The donor's document has different numbers in the same places."""

from __future__ import annotations

import re
from typing import Final

from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext
from sembench.workload.transforms.edits import Edit, edit_budget, edit_every_occurrence, edited_donor_item

_NUMBER: Final = re.compile(r"\d+")


def number_swap(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    """Rotates the values of a few numbers, those of the answer first. Equal neighbours get a changed digit instead."""
    numbers = list(_NUMBER.finditer(record.context))
    if not numbers:
        return Skipped("the document has no number")
    answered = {figure for answer in record.answers for figure in _NUMBER.findall(answer)}
    order = context.draws(record, "number_swap").shuffled(numbers)
    order.sort(key=lambda match: match.group() not in answered)
    chosen = order[: edit_budget(record.context)]
    values = [match.group() for match in chosen]
    edits = [
        Edit(match.start(), match.end(), new if new != match.group() else _other_figure(new))
        for match, new in zip(chosen, [*values[1:], values[0]], strict=True)
    ]
    return edited_donor_item(record, "number_swap", edit_every_occurrence(record.context, edits), hard_negative=True)


def _other_figure(figure: str) -> str:
    return figure[:-1] + str((int(figure[-1]) + 3) % 10)
