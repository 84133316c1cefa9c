"""Claude Code's own session files (``~/.claude/projects/**/*.jsonl``): one message per line, linked by ``parentUuid``.

A request is the first line of each assistant message; its prompt is the chain of messages above it. The files do not
contain the system prompt and the tools, which come first in the real prompt: ``metadata`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sembase.errors import ContractError
from sembase.segment.pieces import pieces_of_messages
from sembase.tokenizer import open_tokenizer
from sembase.trace.files import iter_json_lines
from sembase.trace.formats.interface import record_format
from sembase.trace.formats.logged_request import first_count, time_ms
from sembase.trace.from_prompt import blocks_from_pieces
from sembase.trace.record import TraceBlock, TraceRecord

_MISSING: Final = "system prompt and tools"


def records(path: Path) -> Iterator[TraceRecord]:
    """Holds the blocks of one file: a session."""
    tokenizer = open_tokenizer(None)
    parents: dict[str, str | None] = {}
    blocks: dict[str, tuple[TraceBlock, ...]] = {}
    seen: set[str] = set()
    for where, line in iter_json_lines(path):
        if not isinstance(line, dict):
            raise ContractError(f"{where}: expected a JSON object")
        own, above, message = line.get("uuid"), line.get("parentUuid"), line.get("message")
        if not isinstance(own, str):
            continue  # summaries, file snapshots
        parents[own] = above if isinstance(above, str) else None
        if line.get("type") not in ("user", "assistant") or not isinstance(message, Mapping):
            continue
        answer = message.get("id")
        if line["type"] == "assistant" and isinstance(answer, str) and answer not in seen:
            seen.add(answer)
            record = _record(line, message, answer, _chain(parents, blocks, parents[own]), where)
            if record is not None:
                yield record
        given = {"role": message.get("role"), "content": _content(message.get("content"))}
        blocks[own] = blocks_from_pieces(pieces_of_messages([given]), tokenizer)


def _record(
    line: Mapping[str, Any], message: Mapping[str, Any], answer: str, prompt: tuple[TraceBlock, ...], where: str
) -> TraceRecord | None:
    at_ms = time_ms(line.get("timestamp"))
    if at_ms is None:
        raise ContractError(f"{where}: a message without a timestamp")
    usage = message.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    cached = first_count(usage.get("cache_read_input_tokens"))
    fresh = [first_count(usage.get(name)) for name in ("input_tokens", "cache_creation_input_tokens")]
    model = message.get("model")
    session = line.get("sessionId")
    if not prompt or model == "<synthetic>":  # written by the client itself, without a request
        return None
    return TraceRecord(
        request_id=answer,
        timestamp_ms=at_ms,
        blocks=prompt,
        session_id=session if isinstance(session, str) and session else None,
        model_name=model if isinstance(model, str) and model else None,
        output_tokens=first_count(usage.get("output_tokens")),
        observed_prefix_hit_tokens=cached,
        observed_prefill_tokens=None if fresh[0] is None else fresh[0] + (fresh[1] or 0),
        metadata={"not_in_the_file": _MISSING, "sidechain": line.get("isSidechain") is True},
    )


def _chain(
    parents: Mapping[str, str | None], blocks: Mapping[str, tuple[TraceBlock, ...]], last: str | None
) -> tuple[TraceBlock, ...]:
    chain: list[tuple[TraceBlock, ...]] = []
    passed: set[str] = set()
    while last is not None and last not in passed:
        passed.add(last)
        chain.append(blocks.get(last, ()))
        last = parents.get(last)
    return tuple(block for part in reversed(chain) for block in part)


def _content(content: object) -> object:
    """Anthropic's parts as the segmenter reads them: results of tools are text, calls and thinking their JSON."""
    if not isinstance(content, list):
        return content
    parts: list[object] = []
    for part in content:
        result = part.get("content") if isinstance(part, Mapping) and part.get("type") == "tool_result" else None
        if isinstance(result, list):
            parts += result
        else:
            parts.append(result if isinstance(result, str) else part)
    return parts


FORMAT = record_format(
    "claude_log",
    "Claude Code's own session files: one message per line; without the system prompt and the tools",
    lambda head: b'"sessionId"' in head and (b'"parentUuid"' in head or b'"leafUuid"' in head),
    records,
    ("parentUuid", "sessionId", "uuid", "message", "type"),
)
