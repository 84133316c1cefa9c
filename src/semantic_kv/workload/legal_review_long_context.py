"""Reviewing matters: long evidence is read again for every question of the session, then never more.

About two sessions are open at a time: their evidence and the questions just exceed the published 1,900 tokens. With one
session after another everything fits, and all policies tie.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Part, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system, template = ("system", write.text(60)), ("template", write.text(60))
    evidence: list[Part] = []
    for session, turn, at_ms in side_by_side(plan, start_gap_ms=75_000, pause_ms=30_000):
        if turn == 0:
            evidence = [("retrieved_context", write.text_between(260, 360)) for _ in range(3)]
        yield DrawnRequest(
            session,
            at_ms,
            (system, template, *evidence, ("user", write.text_between(50, 110))),
            plan.random.randint(100, 300),
        )


KIND = WorkloadKind(
    name="legal_review_long_context",
    summary="long evidence reused within its own session, about two sessions at a time",
    seed=404,
    sessions=28,
    requests_per_session=6,
    capacity_tokens=1900,
    draw=draw,
)
