"""The same prompt again: an exact prefix cache serves it without semantic reuse."""

from __future__ import annotations

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TransformContext, make_item


def exact_repeat(record: SourceRecord, context: TransformContext) -> WorkloadItem:
    prompt = base_prompt(record)
    return make_item(record, "exact_repeat", prompt, [prompt], exact=True, semantic=True, materialize=False)
