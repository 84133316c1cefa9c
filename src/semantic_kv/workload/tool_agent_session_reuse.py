"""An agent that calls tools: what the tools said stays in its prompt for the rest of the session, and for no other.

Reuse is local to the session and recent; sessions run one after another.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Part, Plan, WorkloadKind
from semantic_kv.workload.timing import one_after_another


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system, template = ("system", write.text(40)), ("template", write.text(30))
    results: list[Part] = []
    for session, turn, at_ms in one_after_another(plan, pause_ms=4_000):
        if turn == 0:
            results = []
        results.append(("tool_output", write.text_between(18, 28)))
        yield DrawnRequest(
            session,
            at_ms,
            (system, template, *results, ("user", write.text_between(30, 60))),
            plan.random.randint(10, 40),
        )


KIND = WorkloadKind(
    name="tool_agent_session_reuse",
    summary="tool outputs that grow with the session and are reused in it alone",
    seed=303,
    sessions=34,
    requests_per_session=8,
    capacity_tokens=360,
    draw=draw,
)
