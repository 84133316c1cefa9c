"""One system prompt and one template for all requests, short one-off questions: the published 220 tokens fit both
shared blocks and one question at a time."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system, template = ("system", write.text(56)), ("template", write.text(36))
    for session, _, at_ms in side_by_side(plan, start_gap_ms=1_000, pause_ms=10_000):
        yield DrawnRequest(
            session, at_ms, (system, template, ("user", write.text_between(90, 125))), plan.random.randint(20, 80)
        )


KIND = WorkloadKind(
    name="shared_system_prompt_high_reuse",
    summary="a system prompt and a template shared by all, one-off questions",
    seed=202,
    sessions=48,
    requests_per_session=6,
    capacity_tokens=220,
    draw=draw,
)
