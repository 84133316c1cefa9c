"""What position-independent reuse could add to a prefix cache: repeats of at least 64 tokens at any position.

In: a named trace or records in time order; out: counts under an infinite cache, an upper bound on what any system could
reuse. Records with text or content digests show repeats of tokens, others those of whole blocks: ``visible_reuse`` says
what the trace shows at least. Streams within the memory of ``reuse_counter``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.tokenizer import Tokenizer
from sembase.trace.build import in_time_order
from sembase.trace.content_digests import GUARANTEE
from sembase.trace.load import read_records
from sembase.trace.record import TraceRecord, VisibleReuse
from sembase.trace.reuse_counter import PREFIX_STEP, ReuseCounter
from sembase.trace.rows import Column
from sembase.trace.token_rows import TokenRows

DEFAULT_MEMORY_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyPositionReuse:
    """Token counts. ``either`` is the union of prefix and any-position reuse.

    ``visible_reuse`` counts the requests by what their records show. ``forgotten_tokens`` estimates what was missed
    because the memory of the counter was full.
    """

    prompt_tokens: int
    prefix_tokens: int
    either_tokens: int
    min_repeat_tokens: int
    block_tokens: int
    visible_reuse: dict[VisibleReuse, int]
    forgotten_tokens: int
    per_request_prefix_tokens: NDArray[np.int64]
    per_request_either_tokens: NDArray[np.int64]

    @property
    def prefix_share(self) -> float | None:
        return self.prefix_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def either_share(self) -> float | None:
        return self.either_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def added_tokens(self) -> int:
        """Tokens that reuse at any position adds to the prefix."""
        return self.either_tokens - self.prefix_tokens


def what_if_any_position(
    path: Path | str,
    *,
    min_repeat_tokens: int = GUARANTEE,
    block_tokens: int = PREFIX_STEP,
    tokenizer: Tokenizer | None = None,
    format: str | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> AnyPositionReuse:
    """What an exact prefix cache hits, and what repeats of N tokens at any position add, if nothing is evicted."""
    return any_position_reuse_of(
        in_time_order(read_records(path, format), str(path)),
        min_repeat_tokens=min_repeat_tokens,
        block_tokens=block_tokens,
        tokenizer=tokenizer,
        memory_bytes=memory_bytes,
    )


def any_position_reuse_of(
    records: Iterable[TraceRecord],
    *,
    min_repeat_tokens: int = GUARANTEE,
    block_tokens: int = PREFIX_STEP,
    tokenizer: Tokenizer | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> AnyPositionReuse:
    """``tokenizer`` applies to texts; redacted records were tokenized when they were recorded."""
    rows = TokenRows(tokenizer)
    counter = ReuseCounter(memory_bytes=memory_bytes, min_run_tokens=min_repeat_tokens, block_tokens=block_tokens)
    shown: Counter[VisibleReuse] = Counter()
    prefix, either = Column(np.int64), Column(np.int64)
    prompt_tokens = 0
    for record in records:
        found = counter.add(record.tenant_id, rows.digests_of(record))
        prompt_tokens += found.prompt_tokens
        prefix.append(found.prefix_tokens)
        either.append(found.reusable_tokens)
        shown[record.shows] += 1
    if not counter.requests:
        raise ContractError("the trace contains no requests")
    per_request_prefix, per_request_either = prefix.array(), either.array()
    return AnyPositionReuse(
        prompt_tokens=prompt_tokens,
        prefix_tokens=int(per_request_prefix.sum()),
        either_tokens=int(per_request_either.sum()),
        min_repeat_tokens=min_repeat_tokens,
        block_tokens=block_tokens,
        visible_reuse={kind: shown[kind] for kind in get_args(VisibleReuse) if shown[kind]},
        forgotten_tokens=counter.forgotten_tokens,
        per_request_prefix_tokens=per_request_prefix,
        per_request_either_tokens=per_request_either,
    )
