"""The recipient has a different request than the donor, before the evidence: the evidence moves as a whole."""

from __future__ import annotations

from sembench.manifest import DonorPrompt, WorkloadItem, donor_id_for, item_id_for
from sembench.workload.prompt import base_prompt, new_question_of, request_first_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TENANT, TransformContext, make_item


def same_evidence_new_task(record: SourceRecord, context: TransformContext) -> WorkloadItem:
    asked = new_question_of(record)
    donor = DonorPrompt(
        donor_id=donor_id_for(item_id_for(record.dataset, record.source_id, "same_evidence_new_task")),
        text=base_prompt(record, question=asked),
        metadata={"request": asked, "tenant": TENANT},
    )
    return make_item(
        record,
        "same_evidence_new_task",
        request_first_prompt(record),
        [donor],
        exact=False,
        semantic=True,
        materialize=True,
    )
