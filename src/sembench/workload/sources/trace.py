"""Recorded traffic: the prompts of a trace with text, in time order, exactly as they were sent.

``read_trace_records`` gives them as a stream. ``with_donors`` adds which earlier requests of the same tenant each one
repeats, found as ``kvmend estimate`` finds them, so that the transform ``recorded`` can pair them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from sembase.tokenizer import open_tokenizer
from sembase.trace.build import in_time_order
from sembase.trace.content_digests import GUARANTEE
from sembase.trace.digest_tokens import PUBLIC_KEY, digest_tokens
from sembase.trace.files import trace_name
from sembase.trace.load import read_records
from sembase.trace.reuse_counter import RequestReuse, ReuseCounter
from sembase.trace.reuse_tables import DONOR, LENGTH
from sembench.workload.record import SourceRecord

MAX_DONORS: Final = 4  # each is one more request of a live run; those that share most are kept


def read_trace_records(named: Path, max_items: int | None = None) -> Iterator[SourceRecord]:
    """One record at a time. A request without text ends the build: a manifest of the others would mislead."""
    dataset = trace_name(named)
    for position, record in enumerate(islice(in_time_order(read_records(named), named.name), max_items)):
        yield SourceRecord(
            dataset=dataset,
            source_id=record.request_id,
            context=record.prompt_text(),
            verbatim=True,
            metadata={
                "session_id": record.session_id,
                "source_index": position,
                "tenant": record.tenant_id,
                "timestamp_ms": record.timestamp_ms,
            },
        )


def with_donors(records: Iterable[SourceRecord], max_donors: int = MAX_DONORS) -> Iterator[SourceRecord]:
    """Adds ``donors`` to the metadata: positions of at most ``max_donors`` earlier requests, in time order."""
    tokenizer, counter = open_tokenizer(None), ReuseCounter()
    for record in records:
        tokens = tokenizer.ids(record.context)
        donors: list[int] = []
        if len(tokens):
            found = counter.add(record.metadata["tenant"], digest_tokens(tokens, PUBLIC_KEY))
            donors = _donors_of(found, max_donors)
        yield replace(record, metadata={**record.metadata, "donors": donors})


def _donors_of(found: RequestReuse, max_donors: int) -> list[int]:
    """None if too little is shared to be reused."""
    if found.reusable_tokens < GUARANTEE:
        return []
    shared: Counter[int] = Counter()
    for run in found.runs.tolist():
        shared[run[DONOR]] += run[LENGTH]
    if found.prefix_donor is not None:
        shared[found.prefix_donor] += found.prefix_tokens
    return sorted(number for number, _ in shared.most_common(max_donors))
