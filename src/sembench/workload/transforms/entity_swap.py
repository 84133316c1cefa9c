"""The donor's document names other people and places: nearly the same tokens, different facts."""

from __future__ import annotations

import re
from typing import Final

from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext
from sembench.workload.transforms.edits import Edit, edit_budget, edited_donor_item, without_overlap

# After a lower-case word or a comma, a capital letter starts a name, not a sentence.
_NAME: Final = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*")
_CALENDAR: Final = frozenset(
    {
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    }
)
_REPLACEMENT_NAME: Final = "Ulvhild Marrow"


def entity_swap(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    """Swap names that occur in the answer first: reusing those tokens would answer wrongly."""
    names = sorted(set(_NAME.findall(record.context)) - _CALENDAR)
    if not names:
        return Skipped("the document has no recognisable name")
    places = {name: _places(name, record.context) for name in names}
    answered = " ".join(record.answers)
    order = context.draws(record, "entity_swap").shuffled(names)
    order.sort(key=lambda name: (name not in answered, len(places[name])))
    chosen: list[str] = []
    budget = edit_budget(record.context)
    for name in order:
        if len(chosen) < 2 or len(places[name]) <= budget:
            chosen.append(name)
            budget -= len(places[name])
        if budget <= 0 and len(chosen) >= 2:
            break
    renamed = (
        dict(zip(chosen, [*chosen[1:], chosen[0]], strict=True)) if len(chosen) > 1 else {chosen[0]: _REPLACEMENT_NAME}
    )
    edits = [Edit(start, end, new) for old, new in renamed.items() for start, end in places[old]]
    return edited_donor_item(record, "entity_swap", without_overlap(edits), hard_negative=True)


def _places(name: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(rf"\b{re.escape(name)}\b", text)]
