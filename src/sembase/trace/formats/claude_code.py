"""Claude Code sessions: one session a line, requests of chained 64-token block ids that mean something in it alone.

Subagents are nested requests with times of their own. The file holds no absolute times: ``sessions_at_once`` says how
many sessions run side by side (each slot takes the next session of the file when its session ends).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.chain import require_chained
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.formats.claude_session import Session, iter_sessions
from sembase.trace.formats.interface import Options, TraceFormat, parse_options
from sembase.trace.grow import Column
from sembase.trace.naming import trace_name


@dataclass(frozen=True, slots=True)
class ClaudeCodeOptions:
    sessions_at_once: int = 1
    most_sessions: int = 1_000_000


def load(path: Path, given: Options) -> BlockTrace:
    options = parse_options(ClaudeCodeOptions, given, "claude_code")
    if options.sessions_at_once < 1 or options.most_sessions < 1:
        raise ConfigurationError("claude_code: sessions_at_once and most_sessions must be at least 1")
    columns = _Columns()
    waiting = iter(iter_sessions(path, options.most_sessions))
    # (time of the next request, session, its next request, the session's start): the earliest request goes first.
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
                f"{path.name}: sessions with blocks of {block_tokens} and of {session.block_tokens} tokens"
            )
        block_tokens = session.block_tokens
        sessions[session.number] = session
        heapq.heappush(running, (at_ms + float(session.at_ms[0]), session.number, 0, at_ms))

    for _ in range(options.sessions_at_once):
        start_session(0.0)
    while running:
        now_ms, number, request, start_ms = heapq.heappop(running)
        session = sessions[number]
        columns.add(session, request, now_ms)
        if request + 1 < len(session.at_ms):
            heapq.heappush(running, (start_ms + float(session.at_ms[request + 1]), number, request + 1, start_ms))
        else:
            del sessions[number]
            start_session(now_ms)
    if block_tokens is None:
        raise ContractError(f"{path.name}: holds no sessions")
    trace = columns.finish(trace_name(path), block_tokens)
    require_chained(trace)
    return trace


class _Columns:
    """The trace so far. A session is a tenant of its own: its ids mean nothing in another one."""

    def __init__(self) -> None:
        self.interner = TreeInterner()
        self.offsets, self.nodes = Column(np.int64), Column(np.int32)
        self.arrival_ms, self.session = Column(np.float64), Column(np.int32)
        self.output_tokens, self.observed_ttft_ms = Column(np.int32), Column(np.float64)
        self.offsets.append(0)

    def add(self, session: Session, request: int, now_ms: float) -> None:
        ids = session.ids_of(request)
        self.nodes.extend(self.interner.add(session.number, ids, session.block_tokens, session.labels_of(request)))
        self.offsets.append(len(self.nodes))
        self.arrival_ms.append(now_ms)
        self.session.append(session.number)
        self.output_tokens.append(session.output_tokens[request])
        self.observed_ttft_ms.append(session.ttft_ms[request])

    def finish(self, name: str, block_tokens: int) -> BlockTrace:
        session = self.session.array()
        return block_trace(
            name,
            self.offsets.array(),
            self.nodes.array(),
            self.interner,
            block_tokens=block_tokens,
            arrival_ms=self.arrival_ms.array(),
            session=session,
            tenant=session,
            output_tokens=self.output_tokens.array(),
            observed_ttft_ms=self.observed_ttft_ms.array(),
        )


FORMAT = TraceFormat(
    name="claude_code",
    summary="Claude Code sessions: one session a line, nested subagents, 64-token block ids local to the session",
    looks_like=lambda head: head.lstrip().startswith(b"{") and b'"block_size"' in head and b'"requests"' in head,
    load=load,
)
