"""Five passages of a shared pool in an order of their own each time: much repeats, little of it as a prefix."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side

PASSAGES = 40


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system = ("system", write.text(64))
    passages = [("retrieved_context", write.text_between(120, 220)) for _ in range(PASSAGES)]
    for session, _, at_ms in side_by_side(plan, start_gap_ms=1_000, pause_ms=10_000):
        retrieved = plan.random.sample(passages, 5)
        yield DrawnRequest(session, at_ms, (system, *retrieved, ("user", write.text_between(15, 60))), 80)


KIND = WorkloadKind(
    name="shuffled_retrieval",
    summary="passages of a shared pool in changing order: repetition a prefix cache cannot see",
    seed=13,
    sessions=60,
    requests_per_session=5,
    capacity_tokens=5000,
    draw=draw,
)
