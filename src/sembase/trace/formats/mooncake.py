"""Mooncake traces: one request per line; each id of a 512-token block depends on all blocks before it.

``{"timestamp": ms, "input_length": n, "output_length": tokens, "hash_ids": [...]}``; the last block may be partial.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sembase.errors import ContractError
from sembase.settings import read_options, setting
from sembase.trace.chain import require_chained
from sembase.trace.columns import BlockTrace
from sembase.trace.files import iter_json_lines, trace_name
from sembase.trace.formats.interface import Options, TraceFormat
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.rows import TraceRows
from sembase.values import one_of, positive

_FIELDS = {"timestamp", "input_length", "output_length", "hash_ids"}


@dataclass(frozen=True, slots=True)
class MooncakeOptions:
    block_tokens: int = setting(512, positive, "tokens per block")
    unchained: str = setting(
        "reject", one_of("reject", "by_path"), "what to do with ids that do not depend on the blocks before them"
    )


def load(path: Path, given: Options) -> BlockTrace:
    options = read_options(MooncakeOptions, given, "trace format 'mooncake'")
    rows = TraceRows()
    for where, value in iter_json_lines(path):
        arrival, prompt_tokens, output, keys = _parse(value, where)
        tokens = _tokens_of_blocks(prompt_tokens, len(keys), options.block_tokens, where)
        rows.add(keys, tokens, arrival_ms=arrival, output_tokens=output)
    trace = rows.take(trace_name(path), block_tokens=options.block_tokens)
    if options.unchained == "reject":
        require_chained(trace)
    return trace


def records(path: Path) -> Iterator[TraceRecord]:
    """With the default options. The ids are of prefixes, so the records show no other reuse."""
    for number, (where, value) in enumerate(iter_json_lines(path)):
        arrival, prompt_tokens, output, keys = _parse(value, where)
        tokens = _tokens_of_blocks(prompt_tokens, len(keys), MooncakeOptions().block_tokens, where)
        yield TraceRecord(
            f"line-{number + 1}",
            arrival,
            tuple(
                TraceBlock("other", count, block_id=str(key))
                for key, count in zip(keys.tolist(), tokens.tolist(), strict=True)
            ),
            output_tokens=output,
            visible_reuse="prefix",
        )


def _parse(value: object, where: str) -> tuple[float, int, int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    if not isinstance(value, dict) or set(value) != _FIELDS:
        raise ContractError(f"{where}: a Mooncake request has exactly the fields {', '.join(sorted(_FIELDS))}")
    ids, timestamp = value["hash_ids"], value["timestamp"]
    lengths = [value["input_length"], value["output_length"]]
    if not isinstance(timestamp, int | float) or isinstance(timestamp, bool) or not 0 <= timestamp < 2**53:
        raise ContractError(f"{where}: timestamp must be a number of milliseconds >= 0")
    if any(type(length) is not int or not 0 <= length < 2**31 for length in lengths):
        raise ContractError(f"{where}: input_length and output_length must be whole numbers >= 0")
    if not isinstance(ids, list) or not ids or any(type(i) is not int or not 0 <= i < 2**63 for i in ids):
        raise ContractError(f"{where}: hash_ids must be a list of at least one whole number from 0 to 2^63 - 1")
    return float(timestamp), lengths[0], lengths[1], np.array(ids, np.int64)


def _tokens_of_blocks(
    prompt_tokens: int, blocks: int, block_tokens: int, where: str
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    tail = prompt_tokens - (blocks - 1) * block_tokens
    if not 0 < tail <= block_tokens:
        raise ContractError(
            f"{where}: {prompt_tokens} tokens do not fit {blocks} blocks of {block_tokens}; set the right block_tokens"
        )
    tokens = np.full(blocks, block_tokens, np.int32)
    tokens[-1] = tail
    return tokens


FORMAT = TraceFormat(
    name="mooncake",
    summary="Mooncake requests: timestamp, lengths and chained hash_ids of 512-token blocks, one JSON object per line",
    looks_like=lambda head: head.lstrip().startswith(b"{") and b'"hash_ids"' in head and b'"input_length"' in head,
    load=load,
    records=records,
    fields=("timestamp", "input_length", "output_length", "hash_ids"),
)
