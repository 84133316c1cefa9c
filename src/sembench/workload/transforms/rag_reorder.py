"""The same passages in another order, by a seeded shuffle."""

from __future__ import annotations

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import base_prompt, numbered_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.segment import segments_of
from sembench.workload.transforms.base import Skipped, TransformContext, make_item


def rag_reorder(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    segments = segments_of(record, context.max_segments, context.min_segment_chars)
    if len(segments) < 2:
        return Skipped("the document has only one segment: nothing to reorder")
    order = context.draws(record, "rag_reorder").deranged(range(len(segments)))
    shuffled = [segments[i] for i in order]
    return make_item(
        record,
        "rag_reorder",
        numbered_prompt(record, shuffled, "Record"),
        [base_prompt(record)],
        exact=False,
        semantic=True,
        materialize=True,
        segments=segments,
        extra={"segment_order": order},
    )
