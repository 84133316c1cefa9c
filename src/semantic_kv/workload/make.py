"""A kind of workload and its numbers in, records and columns out."""

from __future__ import annotations

import hashlib
import random

from semantic_kv.workload.interface import DrawnRequest, Plan, Workload, WorkloadKind
from semantic_kv.workload.texts import Writer
from sembase.errors import ConfigurationError
from sembase.tokenizer import WordTokenizer
from sembase.trace.build import build_trace
from sembase.trace.record import TraceBlock, TraceRecord


def draw_workload(
    kind: WorkloadKind,
    *,
    seed: int | None = None,
    sessions: int | None = None,
    requests_per_session: int | None = None,
    tenants: int = 1,
) -> Workload:
    """``tenants`` deals the sessions out to that many tenants, who share nothing."""
    seed = kind.seed if seed is None else seed
    session_count = kind.sessions if sessions is None else sessions
    turns = kind.requests_per_session if requests_per_session is None else requests_per_session
    if min(session_count, turns, tenants) < 1:
        raise ConfigurationError(f"workload {kind.name}: sessions, requests and tenants must be at least 1")
    source = random.Random(seed)
    drawn = sorted(kind.draw(Plan(session_count, turns, source, Writer(source))), key=lambda request: request.at_ms)
    counter = WordTokenizer()
    records = tuple(_record(number, request, tenants, counter) for number, request in enumerate(drawn))
    name = kind.name if seed == kind.seed else f"{kind.name}_seed{seed}"
    return Workload(name, seed, kind.capacity_tokens, records, build_trace(records, name))


def _record(number: int, request: DrawnRequest, tenants: int, counter: WordTokenizer) -> TraceRecord:
    blocks = tuple(
        TraceBlock(
            semantic_type=label,
            token_count=counter.count(text),
            content_hash=hashlib.sha256(text.encode()).hexdigest(),
            text=text,
            position=position,
        )
        for position, (label, text) in enumerate(request.parts)
    )
    return TraceRecord(
        request_id=f"request-{number:05d}",
        timestamp_ms=round(request.at_ms, 3),
        blocks=blocks,
        session_id=f"session-{request.session:03d}",
        tenant_id=f"tenant-{request.session % tenants}",
        output_tokens=request.output_tokens,
    )
