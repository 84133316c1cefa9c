"""One donor per segment: only a planner that combines several donors covers the recipient."""

from __future__ import annotations

from sembench.manifest import DonorPrompt, WorkloadItem, item_id_for, segment_donor_id_for
from sembench.workload.prompt import numbered_prompt, segment_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.segment import segments_of
from sembench.workload.transforms.base import TENANT, Skipped, TransformContext, make_item


def multi_donor_composite(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    segments = segments_of(record, context.max_segments, context.min_segment_chars)
    if len(segments) < 2:
        return Skipped("the document has only one segment: nothing to compose")
    item_id = item_id_for(record.dataset, record.source_id, "multi_donor_composite")
    donors = [
        DonorPrompt(
            donor_id=segment_donor_id_for(item_id, index),
            text=segment_prompt(segment, index + 1),
            label=f"segment-{index}",
            metadata={"tenant": TENANT},
        )
        for index, segment in enumerate(segments)
    ]
    return make_item(
        record,
        "multi_donor_composite",
        numbered_prompt(record, segments, "Document"),
        donors,
        exact=False,
        semantic=True,
        materialize=True,
        segments=segments,
    )
