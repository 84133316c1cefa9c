"""What the reuse counter finds in whole traces, summed: the counts that ``kvmend estimate`` makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from sembase.trace.content_digests import GUARANTEE
from sembase.trace.record import TraceRecord
from sembase.trace.reuse_counter import ReuseCounter
from sembase.trace.token_rows import TokenRows


class CountedReuse(NamedTuple):
    """``either`` is the union of prefix and any-position reuse; ``shown`` counts requests by what records show."""

    prompt_tokens: int
    prefix_tokens: int
    either_tokens: int
    forgotten_tokens: int
    shown: dict[str, int]

    @property
    def added_tokens(self) -> int:
        return self.either_tokens - self.prefix_tokens


def counted_reuse(records: Iterable[TraceRecord]) -> CountedReuse:
    rows, shown = TokenRows(), Counter[str]()
    counter = ReuseCounter(memory_bytes=1 << 30, min_run_tokens=GUARANTEE)
    prompt = prefix = either = 0
    for record in records:
        found = counter.add(record.tenant_id, rows.digests_of(record))
        prompt, prefix, either = (
            prompt + found.prompt_tokens,
            prefix + found.prefix_tokens,
            either + found.reusable_tokens,
        )
        shown[record.shows] += 1
    return CountedReuse(prompt, prefix, either, counter.forgotten_tokens, dict(shown))
