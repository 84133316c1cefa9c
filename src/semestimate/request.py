"""A named trace in, its requests as arrays out: one prompt at a time, in time order, whatever the format.

Content digests (of the text, or those of a redacted record) make reuse at any position countable. With text, each block
also has a *shape*: its text without dates, numbers and ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.labels import label_index
from sembase.tokenizer import Tokenizer
from sembase.trace.build import in_time_order
from sembase.trace.content_digests import ContentDigests
from sembase.trace.digest_tokens import PUBLIC_KEY, digest_tokens
from sembase.trace.formats.claude_code import block_requests
from sembase.trace.load import read_records, sniff_format
from sembase.trace.locate import trace_files
from sembase.trace.merge import merge_records
from sembase.trace.record import TraceBlock, TraceRecord, VisibleReuse
from sembase.trace.token_rows import TokenRows

CACHED_TEXTS: Final = 1 << 16
_HEX: Final = re.compile("[0-9a-f]{16,}")
_DAYS: Final = "mon|tue|tues|wed|thu|thurs|fri|sat|sun|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec"
_LONG_MONTHS: Final = "january|february|march|april|june|july|august|september|october|november|december"
# A word that contains a digit (a number, a time, an id), the name of a day or a month, am and pm. Words are looked at
# from their beginning only: the time is linear in a word of any length.
_VARIABLE: Final = re.compile(
    rf"(?<![\w:.+/-])[\w:.+/-]*\d[\w:.+/-]*|\b(?:{_DAYS}|{_MONTHS}|{_LONG_MONTHS}|am|pm|utc|gmt)\b[.,]?", re.IGNORECASE
)
_MAX_TOOLS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``keys`` identify the content of the blocks, together with everything before them if ``shows`` is "prefix".

    ``digests`` are None if the blocks show prefixes only. ``shapes`` are the keys of the blocks' shapes and
    ``bare`` those of their texts without white space around them; None without text. ``tools`` maps the number of a
    block that lists tools to the keys of the single tools.
    """

    at_ms: float
    shows: VisibleReuse
    keys: NDArray[np.uint64]
    tokens: NDArray[np.int32]
    labels: NDArray[np.uint8]
    tenant: str | None = None
    session: str | None = None
    model: str | None = None
    digests: ContentDigests | None = None
    shapes: NDArray[np.uint64] | None = None
    bare: NDArray[np.uint64] | None = None
    tools: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    observed_hit_tokens: int | None = None
    observed_prompt_tokens: int = 0  # that the server saw; the log may lack the system prompt

    @property
    def prompt_tokens(self) -> int:
        return int(self.tokens.sum())


class _Text(NamedTuple):
    shape: int
    bare: int
    tools: tuple[int, ...]


class _Texts(OrderedDict[int, _Text]):
    """Content keys to what was read in their texts; the last ``CACHED_TEXTS`` of them."""

    def read(self, key: int, text: str) -> _Text:
        known = self.get(key)
        if known is None:
            bare = text.strip()
            known = self[key] = _Text(_key_of(_VARIABLE.sub("#", bare)), _key_of(bare), _tools_of(bare))
            if len(self) > CACHED_TEXTS:
                self.popitem(last=False)
        return known


class RequestReader:
    """Records to requests. ``tokenizer`` counts and cuts the texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._rows = TokenRows(tokenizer)
        self._texts = _Texts()

    def requests(self, named: Sequence[Path], format: str | None = None) -> Iterator[Request]:
        """Several named traces are one stream, merged by time."""
        files = [file for each in named for file in trace_files(each)]
        if len(files) == 1 and (format or sniff_format(files[0])) == "claude_code":
            yield from _claude_code_requests(files[0])
            return
        if len(files) == 1:
            records = read_records(files[0], format)
        else:
            records = merge_records([partial(read_records, file, format) for file in files])
        for record in in_time_order(records, files[0].name):
            yield self.request_of(record)

    def request_of(self, record: TraceRecord) -> Request:
        blocks = record.blocks
        hit, prefilled = record.observed_prefix_hit_tokens, record.observed_prefill_tokens
        keys = [content_key(block) for block in blocks]
        texts = [block.text for block in blocks]
        read = [self._texts.read(key, text) for key, text in zip(keys, texts, strict=True) if text is not None]
        is_text = len(read) == len(blocks)
        digests: ContentDigests | None
        if is_text and record.content_digests is None:
            rows = [
                self._rows.of_block(block) for block in blocks
            ]  # also where the log has counts of another tokenizer
            tokens, digests = list(map(len, rows)), digest_tokens(np.concatenate(rows), PUBLIC_KEY)
        else:
            tokens = [block.token_count for block in blocks]
            digests = self._rows.digests_of(record) if record.shows in ("any_position", "block") else None
        return Request(
            at_ms=record.timestamp_ms,
            shows=record.shows,
            keys=np.array(keys, np.uint64),
            tokens=np.array(tokens, np.int32),
            labels=np.array([label_index(block.semantic_type) for block in blocks], np.uint8),
            tenant=record.tenant_id,
            session=record.session_id,
            model=record.model_name,
            digests=digests,
            shapes=np.array([each.shape for each in read], np.uint64) if is_text else None,
            bare=np.array([each.bare for each in read], np.uint64) if is_text else None,
            tools={at: each.tools for at, each in enumerate(read) if each.tools} if is_text else {},
            observed_hit_tokens=hit,
            observed_prompt_tokens=max(hit or 0, sum(tokens)) if prefilled is None else (hit or 0) + prefilled,
        )


def content_key(block: TraceBlock) -> int:
    """The same 64 bits in every process."""
    if block.content_hash is not None:
        return int(block.content_hash[:16], 16) if _HEX.match(block.content_hash) else _key_of(block.content_hash)
    return _key_of(block.text if block.text is not None else f"id {block.block_id}")


def _key_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _tools_of(text: str) -> tuple[int, ...]:
    """The keys of the tools in the JSON list that a request's ``tools`` become; empty for other texts."""
    if not (text.startswith("[{") and text.endswith("}]")):
        return ()
    try:
        tools = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not all(isinstance(tool, dict) and ("function" in tool or "name" in tool or "type" in tool) for tool in tools):
        return ()
    return tuple(_key_of(json.dumps(tool, sort_keys=True)) for tool in tools[:_MAX_TOOLS])


def _claude_code_requests(file: Path) -> Iterator[Request]:
    """Without a record per block: this format has thousands of blocks in a request."""
    for request in block_requests(file):
        yield Request(
            at_ms=request.at_ms,
            shows="prefix",
            keys=request.ids.astype(np.uint64),
            tokens=np.full(len(request.ids), request.block_tokens, np.int32),
            labels=request.labels,
            tenant=request.session,
            session=request.session,
        )
