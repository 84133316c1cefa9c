"""The same text from another tenant. Everything matches, but nothing may be planned, loaded or confirmed."""

from __future__ import annotations

from typing import Final

from sembench.manifest import DonorPrompt, WorkloadItem, donor_id_for, item_id_for
from sembench.workload.prompt import base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TransformContext, make_item

OTHER_TENANT: Final = "tenant-b"


def cross_tenant(record: SourceRecord, context: TransformContext) -> WorkloadItem:
    prompt = base_prompt(record)
    item_id = item_id_for(record.dataset, record.source_id, "cross_tenant")
    donor = DonorPrompt(donor_id=donor_id_for(item_id), text=prompt, metadata={"tenant": OTHER_TENANT})
    return make_item(
        record, "cross_tenant", prompt, [donor], exact=False, semantic=False, materialize=False, negative=True
    )
