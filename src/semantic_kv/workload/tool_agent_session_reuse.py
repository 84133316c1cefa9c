"""An agent that calls tools: what the tools said stays in its prompt for the rest of the session, and for no other.

About three sessions are open at a time and exceed the published 360 tokens together. With one session after another
everything fits, and all policies tie.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Part, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system, template = ("system", write.text(40)), ("template", write.text(30))
    results: list[Part] = []
    for session, turn, at_ms in side_by_side(plan, start_gap_ms=12_000, pause_ms=4_000):
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
