"""The same document after a different instruction: the exact prefix ends within the first words."""

from __future__ import annotations

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import analyst_prompt, base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TransformContext, make_item


def instruction_variant(record: SourceRecord, context: TransformContext) -> WorkloadItem:
    return make_item(
        record,
        "instruction_variant",
        analyst_prompt(record),
        [base_prompt(record)],
        exact=False,
        semantic=True,
        materialize=True,
    )
