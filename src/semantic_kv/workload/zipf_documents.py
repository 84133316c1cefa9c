"""One document and one question a request; documents are asked about with Zipf popularity, independently each time."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side

DOCUMENTS = 200


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system = ("system", write.text(64))
    documents = [("retrieved_context", write.text_between(100, 500)) for _ in range(DOCUMENTS)]
    popularity = [1.0 / rank for rank in range(1, DOCUMENTS + 1)]
    for session, _, at_ms in side_by_side(plan, start_gap_ms=500, pause_ms=5_000):
        document = plan.random.choices(documents, popularity)[0]
        yield DrawnRequest(session, at_ms, (system, document, ("user", write.text_between(10, 40))), 50)


KIND = WorkloadKind(
    name="zipf_documents",
    summary="independent questions about documents of Zipf popularity",
    seed=12,
    sessions=100,
    requests_per_session=10,
    capacity_tokens=12000,
    draw=draw,
)
