"""The evidence is at position 0 in the recipient and after a wrapper in the donor: tests the start of the prompt."""

from __future__ import annotations

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import cache_entry_prompt, evidence_first_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TransformContext, make_item


def leading_evidence_new_task(record: SourceRecord, context: TransformContext) -> WorkloadItem:
    return make_item(
        record,
        "leading_evidence_new_task",
        evidence_first_prompt(record),
        [cache_entry_prompt(record)],
        exact=False,
        semantic=True,
        materialize=True,
    )
