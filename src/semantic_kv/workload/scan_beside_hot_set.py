"""A batch job reads documents once each while chats share a few hot ones: the scan must not evict the hot set."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side

HOT = 6


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system = ("system", write.text(64))
    hot = [("retrieved_context", write.text(300)) for _ in range(HOT)]
    for session, _, at_ms in side_by_side(plan, start_gap_ms=1_000, pause_ms=10_000):
        is_scan = session % 2 == 1
        document = ("retrieved_context", write.text(300)) if is_scan else plan.random.choice(hot)
        yield DrawnRequest(session, at_ms, (system, document, ("user", write.text_between(15, 40))), 60)


KIND = WorkloadKind(
    name="scan_beside_hot_set",
    summary="documents read once beside documents shared by all",
    seed=14,
    sessions=60,
    requests_per_session=8,
    capacity_tokens=2500,
    draw=draw,
)
