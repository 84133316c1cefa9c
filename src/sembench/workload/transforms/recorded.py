"""A recorded request after the earlier requests of its tenant that it repeats; one that repeats none is a control.

A control has a donor of the same traffic that shares no sixteen words with it, or, if all traffic shares something, its
own text from another tenant. So every request is exactly one item, and nothing may be reused for a control.
"""

from __future__ import annotations

from sembench.manifest import DonorPrompt, WorkloadItem, derive_id, item_id_for
from sembench.workload.prompt import base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import TENANT, Skipped, TransformContext, make_item
from sembench.workload.transforms.cross_tenant import cross_tenant
from sembench.workload.transforms.negative_control import negative_control

NAME = "recorded"


def recorded(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    """``donors`` in the record's metadata are positions in the corpus, which is the trace in time order."""
    positions = record.metadata.get("donors")
    if positions is None:
        return Skipped("not a request of a trace (kvmend bench build --from-trace)")
    if not positions:
        control = negative_control(record, context)
        return cross_tenant(record, context) if isinstance(control, Skipped) else control
    item_id = item_id_for(record.dataset, record.source_id, NAME)
    tenant = record.metadata.get("tenant") or TENANT
    earlier = [context.corpus[position] for position in positions]
    donors = [
        DonorPrompt(
            donor_id=derive_id(item_id, "donor", donor.source_id),
            text=base_prompt(donor),
            metadata={"tenant": tenant, "source_id": donor.source_id},
        )
        for donor in earlier
    ]
    unknown = {"expected_exact": None, "expected_semantic": None, "expected_materialize": None}
    return make_item(
        record,
        NAME,
        base_prompt(record),
        donors,
        exact=False,
        semantic=False,
        materialize=False,
        extra={"tenant": tenant, **unknown},
    )
