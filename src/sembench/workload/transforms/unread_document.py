"""The question about one document, asked about another: an answer that is still right was guessed."""

from __future__ import annotations

from dataclasses import replace

from sembench.manifest import WorkloadItem
from sembench.workload.prompt import analyst_prompt, base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms.base import Skipped, TransformContext, make_item


def unread_document(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    """Donor and recipient hold another record's document of the same dataset. Documents that answer it are not used."""
    others = [
        other
        for other in context.corpus
        if other.dataset == record.dataset
        and other.context != record.context
        and not any(answer and answer in other.context for answer in record.answers)
    ]
    if record.verbatim or not others:
        return Skipped("the dataset has no other document without the answer")
    other = context.draws(record, "unread_document").choose(others)
    unread = replace(record, context=other.context, passages=other.passages)
    return make_item(
        unread,
        "unread_document",
        analyst_prompt(unread),
        [base_prompt(unread)],
        exact=False,
        semantic=True,
        materialize=True,
    )
