"""Retrieval under low memory: shared instructions and topic documents compete with large one-off user texts.

The reusable blocks (about 2,540 tokens) just fit the published 2,700; together with the users' texts they do not.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Plan, WorkloadKind
from semantic_kv.workload.timing import dealt_evenly, side_by_side

TOPICS = 5


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system, template = ("system", write.text(60)), ("template", write.text(80))
    documents = [[("retrieved_context", write.text(240)) for _ in range(2)] for _ in range(TOPICS)]
    topic_of = dealt_evenly(plan, TOPICS)
    for session, _, at_ms in side_by_side(plan, start_gap_ms=2_000, pause_ms=20_000):
        question = ("user", write.text_between(150, 450))
        parts = (system, template, *documents[topic_of[session]], question)
        yield DrawnRequest(session, at_ms, parts, plan.random.randint(40, 160))


KIND = WorkloadKind(
    name="low_memory_rag_stress",
    summary="topic documents shared by sessions, against large one-off user texts",
    seed=101,
    sessions=36,
    requests_per_session=7,
    capacity_tokens=2700,
    draw=draw,
)
