"""Reviewing one matter at a time: long evidence is read again for every question of the session, then never more.

Sessions run one after another, so recency says nearly all about reuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Part, Plan, WorkloadKind
from semantic_kv.workload.timing import one_after_another


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system, template = ("system", write.text(60)), ("template", write.text(60))
    evidence: list[Part] = []
    for session, turn, at_ms in one_after_another(plan, pause_ms=30_000):
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
    summary="long evidence reused within its own session, one session after another",
    seed=404,
    sessions=28,
    requests_per_session=6,
    capacity_tokens=1900,
    draw=draw,
)
