"""Traffic in its original order: every earlier recipient of the stream is a donor.

This is the natural measurement for agent traces and queues of retrieval questions, because repeats are not arranged.
"""

from __future__ import annotations

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TransformContext, make_item


def stream(record: SourceRecord, context: TransformContext) -> WorkloadItem:
    return make_item(
        record,
        "stream",
        base_prompt(record),
        [],
        exact=False,
        semantic=False,
        materialize=False,
        extra={
            "stream": True,
            "stream_id": record.dataset,
            **({"tenant": record.metadata["tenant"]} if record.metadata.get("tenant") is not None else {}),
            "expected_exact": None,
            "expected_semantic": None,
            "expected_materialize": None,
        },
    )
