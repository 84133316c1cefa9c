"""The donor is the earlier revision of the document, in which the fact that decides the answer was another one."""

from __future__ import annotations

from sembench.manifest import WorkloadItem
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext
from sembench.workload.transforms.edits import Edit, edited_donor_item


def field_edit(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    """An answer from outdated KV would be ``stale_answer``."""
    if not record.earlier_edits or record.earlier_answer is None:
        return Skipped("the record has no earlier revision (build --profile answers)")
    edits = [Edit(*edit) for edit in record.earlier_edits]
    extra = {"stale_answer": record.earlier_answer}
    return edited_donor_item(record, "field_edit", edits, hard_negative=True, extra=extra)
