"""What if content could be reused at any position: the question asked of a file of texts or of trace records.

Records must still hold their text; digests say what repeats as a whole, not which tokens do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.tokenizer import TextTokenizer, open_tokenizer
from sembase.trace.any_position import AnyPositionReuse, any_position_reuse
from sembase.trace.build import Names
from sembase.trace.formats.agent_text import token_rows
from sembase.trace.load import read_records, sniff_format
from sembase.trace.record import TraceRecord


def what_if_any_position(
    path: Path | str,
    *,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
    tokenizer: TextTokenizer | None = None,
    format: str | None = None,
) -> AnyPositionReuse:
    """Under an infinite cache: what an exact prefix cache finds, and what repeats of N tokens anywhere would add."""
    file = Path(path)
    name = format or sniff_format(file)
    if name == "agent_text":
        rows = token_rows(file, tokenizer)
        return any_position_reuse(rows, min_repeat_tokens=min_repeat_tokens, block_tokens=block_tokens)
    return any_position_reuse_of(
        read_records(file, name), min_repeat_tokens=min_repeat_tokens, block_tokens=block_tokens, tokenizer=tokenizer
    )


def any_position_reuse_of(
    records: Iterable[TraceRecord],
    *,
    min_repeat_tokens: int = 64,
    block_tokens: int = 16,
    tokenizer: TextTokenizer | None = None,
) -> AnyPositionReuse:
    encoder = tokenizer or open_tokenizer(None)
    tenants = Names()
    rows: list[NDArray[np.int32]] = []
    owners: list[int] = []
    for record in records:
        rows.append(encoder.encode("".join(_texts(record))))
        owners.append(tenants.id_of(record.tenant_id))
    return any_position_reuse(rows, tenants=owners, min_repeat_tokens=min_repeat_tokens, block_tokens=block_tokens)


def _texts(record: TraceRecord) -> list[str]:
    texts = [block.text for block in record.blocks if block.text is not None]
    if len(texts) != len(record.blocks):
        raise ContractError(
            f"request {record.request_id}: a block has no text; reuse at any position needs the prompts' text"
        )
    return texts
