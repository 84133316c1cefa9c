"""Agent calls with their full prompt text, tokenized and cut into chained blocks of ``block_tokens`` (16) tokens.

``{"timestamp": us, "session_id"?, "input": prompt, "output": answer}``, one call per line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.finish import STOP, TOOL_CALL
from sembase.settings import read_options, setting
from sembase.tokenizer import RecentCounts, open_tokenizer
from sembase.trace.build import Names
from sembase.trace.columns import BlockTrace
from sembase.trace.files import iter_json_lines, trace_name
from sembase.trace.formats.interface import Options, TraceFormat
from sembase.trace.from_prompt import record_from_prompt
from sembase.trace.record import TraceRecord
from sembase.trace.rows import TraceRows
from sembase.values import one_of, optional, positive, text

_FIELDS: Final = {"timestamp", "session_id", "input", "output"}


@dataclass(frozen=True, slots=True)
class AgentTextOptions:
    block_tokens: int = setting(16, positive, "tokens per block")
    tokenizer: str | None = setting(None, optional(text), "a tokenizer.json; null uses the built-in rule")
    tail: str = setting("keep", one_of("keep", "drop"), "what happens to a partial last block")


@dataclass(frozen=True, slots=True)
class AgentCall:
    at_ms: float
    session_id: str | None
    prompt: str
    output: str


def load(path: Path, given: Options) -> BlockTrace:
    options = read_options(AgentTextOptions, given, "trace format 'agent_text'")
    tokenizer = open_tokenizer(options.tokenizer, counted_ids=True)
    rows, contents, sessions = TraceRows(), Names(), Names()
    for call in read_calls(path):
        blocks = cut_into_blocks(tokenizer.ids(call.prompt), options.block_tokens, keep_tail=options.tail == "keep")
        keys = np.array([contents.id_of(block.tobytes()) for block in blocks], np.int64)
        rows.add(
            keys,
            np.array([len(block) for block in blocks], np.int32),
            arrival_ms=call.at_ms,
            session=sessions.id_of(call.session_id),
            output_tokens=tokenizer.count(call.output),
            finish=finish_of(call.output),
        )
    return rows.take(trace_name(path), block_tokens=options.block_tokens)


def records(path: Path) -> Iterator[TraceRecord]:
    """In time order, prompts as labelled blocks of text. Holds the texts: the published sets are not sorted."""
    counts = RecentCounts(open_tokenizer(None))
    for number, call in enumerate(read_calls(path), start=1):
        if not call.prompt.strip():
            continue
        record = record_from_prompt(
            call.prompt,
            request_id=f"call-{number}",
            timestamp_ms=call.at_ms,
            session_id=call.session_id or None,
            tokenizer=counts,
        )
        yield replace(record, output_tokens=counts.count(call.output))


def read_calls(path: Path) -> list[AgentCall]:
    """In time order; the published sets list one session after another. Time starts at the first call."""
    calls = sorted(_iter_calls(path), key=lambda call: call.at_ms)
    if not calls:
        raise ContractError(f"{path.name}: contains no calls")
    start_ms = calls[0].at_ms
    return [AgentCall(call.at_ms - start_ms, call.session_id, call.prompt, call.output) for call in calls]


def finish_of(output: str) -> int:
    """The published calls have no finish reason. An answer without text, or with a fenced command, called a tool."""
    return TOOL_CALL if not output.strip() or "```" in output else STOP


def cut_into_blocks(tokens: NDArray[np.int32], block_tokens: int, *, keep_tail: bool) -> list[NDArray[np.int32]]:
    stop = len(tokens) if keep_tail else len(tokens) - len(tokens) % block_tokens
    return [tokens[start : min(start + block_tokens, stop)] for start in range(0, stop, block_tokens)]


def _iter_calls(path: Path) -> Iterator[AgentCall]:
    for where, value in iter_json_lines(path):
        if not isinstance(value, dict) or not {"timestamp", "input"} <= set(value) <= _FIELDS:
            raise ContractError(f"{where}: an agent call has timestamp and input, and may have session_id and output")
        timestamp, session = value["timestamp"], value.get("session_id")
        prompt, output = value["input"], value.get("output") or ""
        is_number = isinstance(timestamp, int | float) and not isinstance(timestamp, bool)
        if not is_number or not 0 <= timestamp < 2**63:
            raise ContractError(f"{where}: timestamp must be a number of microseconds >= 0")
        if not isinstance(prompt, str) or not isinstance(output, str) or not isinstance(session, str | None):
            raise ContractError(f"{where}: input, output and session_id must be text")
        yield AgentCall(timestamp / 1000.0, session, prompt, output)


def _looks_like(head: bytes) -> bool:
    first = head.lstrip().partition(b"\n")[0]
    is_call = first.startswith(b"{") and b'"input"' in first and b'"timestamp"' in first
    return is_call and b'"model"' not in first and b'"request"' not in first


FORMAT = TraceFormat(
    name="agent_text",
    summary="agent calls with prompt text (timestamp in us, input, output, session_id?), tokenized into chained blocks",
    looks_like=_looks_like,
    load=load,
    records=records,
    fields=("timestamp", "session_id", "input", "output"),
)
