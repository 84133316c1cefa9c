"""Claude Code sessions: one session per line, requests as chained ids of 64-token blocks, local to the session.

Subagents are nested requests with their own times. The file has no absolute times: ``sessions_at_once`` sets how many
sessions run concurrently (each slot starts the next session of the file when its session ends).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.labels import LABELS
from sembase.settings import read_options, setting
from sembase.trace.chain import require_chained
from sembase.trace.columns import BlockTrace
from sembase.trace.files import trace_name
from sembase.trace.formats.claude_session import Session, iter_sessions
from sembase.trace.formats.interface import Options, TraceFormat
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.rows import TraceRows
from sembase.values import positive


@dataclass(frozen=True, slots=True)
class ClaudeCodeOptions:
    sessions_at_once: int = setting(1, positive, "sessions that run concurrently")
    max_sessions: int = setting(1_000_000, positive, "sessions to read from the file")


def load(path: Path, given: Options) -> BlockTrace:
    options = read_options(ClaudeCodeOptions, given, "trace format 'claude_code'")
    rows = TraceRows()
    block_tokens: int | None = None
    for now_ms, session, request in _iter_requests(path, options):
        block_tokens = session.block_tokens
        rows.add(
            session.ids_of(request),
            session.block_tokens,
            session.labels_of(request),
            namespace=session.number,  # ids are local to a session, so each session is its own tenant
            arrival_ms=now_ms,
            session=session.number,
            tenant=session.number,
            output_tokens=session.output_tokens[request],
            finish=session.finish[request],
            observed_ttft_ms=session.ttft_ms[request],
        )
    if block_tokens is None:
        raise ContractError(f"{path.name}: contains no sessions")
    trace = rows.take(trace_name(path), block_tokens=block_tokens)
    require_chained(trace)
    return trace


def records(path: Path) -> Iterator[TraceRecord]:
    """With the default options. The ids are of prefixes and local to a session, which is its own tenant."""
    for now_ms, session, request in _iter_requests(path, ClaudeCodeOptions()):
        output, ttft_ms = int(session.output_tokens[request]), float(session.ttft_ms[request])
        name = f"session-{session.number}"
        labels = [LABELS[label] for label in session.labels_of(request).tolist()]
        yield TraceRecord(
            f"{name}-{request}",
            now_ms,
            tuple(
                TraceBlock(label, session.block_tokens, block_id=str(block))
                for label, block in zip(labels, session.ids_of(request).tolist(), strict=True)
            ),
            session_id=name,
            tenant_id=name,
            output_tokens=output if output >= 0 else None,
            observed_ttft_ms=None if math.isnan(ttft_ms) else ttft_ms,
            visible_reuse="prefix",
        )


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """One request as arrays of block ids and label indexes."""

    at_ms: float
    session: str
    ids: NDArray[np.int64]
    labels: NDArray[np.uint8]
    block_tokens: int


def block_requests(path: Path) -> Iterator[BlockRequest]:
    """What ``records`` gives, without an object per block."""
    for now_ms, session, request in _iter_requests(path, ClaudeCodeOptions()):
        yield BlockRequest(
            now_ms,
            f"session-{session.number}",
            session.ids_of(request),
            session.labels_of(request),
            session.block_tokens,
        )


def _iter_requests(path: Path, options: ClaudeCodeOptions) -> Iterator[tuple[float, Session, int]]:
    """(time in ms, session, number of its request), in time order; holds the sessions that run."""
    waiting = iter(iter_sessions(path, options.max_sessions))
    # (time of the next request, session, its next request, the session's start): a heap by time.
    running: list[tuple[float, int, int, float]] = []
    sessions: dict[int, Session] = {}
    block_tokens: int | None = None

    def start_session(at_ms: float) -> None:
        nonlocal block_tokens
        session = next(waiting, None)
        if session is None:
            return
        if block_tokens not in (None, session.block_tokens):
            raise ContractError(
                f"{path.name}: sessions differ in block size ({block_tokens} and {session.block_tokens} tokens)"
            )
        block_tokens = session.block_tokens
        sessions[session.number] = session
        heapq.heappush(running, (at_ms + float(session.at_ms[0]), session.number, 0, at_ms))

    for _ in range(options.sessions_at_once):
        start_session(0.0)
    while running:
        now_ms, number, request, start_ms = heapq.heappop(running)
        session = sessions[number]
        yield now_ms, session, request
        if request + 1 < len(session.at_ms):
            heapq.heappush(running, (start_ms + float(session.at_ms[request + 1]), number, request + 1, start_ms))
        else:
            del sessions[number]
            start_session(now_ms)


FORMAT = TraceFormat(
    name="claude_code",
    summary="Claude Code sessions: one session per line, nested subagents, 64-token block ids local to the session",
    looks_like=lambda head: head.lstrip().startswith(b"{") and b'"block_size"' in head and b'"requests"' in head,
    load=load,
    records=records,
    fields=("models", "block_size", "tool_tokens", "system_tokens", "requests"),
)
