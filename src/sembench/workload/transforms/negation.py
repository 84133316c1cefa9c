"""A few sentences of the donor's document are negated: one short word changes the meaning."""

from __future__ import annotations

import re
from typing import Final

from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext
from sembench.workload.transforms.edits import Edit, edit_budget, edit_every_occurrence, edited_donor_item

_CLAIM: Final = re.compile(
    r"\b(?:is|are|was|were|has|have|had|can|could|will|would|should|must|may|did|does|do)\b(?P<not> not\b)?"
)
_NOT: Final = re.compile(r" not\b")


def negation(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    claims = list(_CLAIM.finditer(record.context))
    if not claims:
        return Skipped("the document has no verb that a 'not' could follow")
    chosen = context.draws(record, "negation").shuffled(claims)[: edit_budget(record.context)]
    edits = []
    for claim in sorted(chosen, key=lambda match: match.start()):
        if claim["not"]:
            edits.append(Edit(claim.start("not"), claim.end("not"), ""))
        else:
            edits.append(Edit(claim.end(), claim.end(), " not"))
    spread = edit_every_occurrence(record.context, edits)
    kept = [edit for edit in spread if not (edit.replacement and _NOT.match(record.context, edit.end))]
    return edited_donor_item(record, "negation", kept, hard_negative=True)
