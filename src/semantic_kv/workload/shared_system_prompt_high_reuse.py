"""One system prompt for all requests, a template for each of eight applications, short one-off questions.

All shared blocks fit the published 220 tokens, but beside a question there is room for about three templates. The
applications differ in popularity (Zipf), so that which template to keep is up to the policy. With a single template
nothing is displaced, and all policies tie.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side

APPLICATIONS = 8


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system = ("system", write.text(56))
    templates = [("template", write.text(20)) for _ in range(APPLICATIONS)]
    popularity = [1 / rank for rank in range(1, APPLICATIONS + 1)]
    application_of = plan.random.choices(range(APPLICATIONS), popularity, k=plan.sessions)
    for session, _, at_ms in side_by_side(plan, start_gap_ms=1_000, pause_ms=10_000):
        yield DrawnRequest(
            session,
            at_ms,
            (system, templates[application_of[session]], ("user", write.text_between(90, 125))),
            plan.random.randint(20, 80),
        )


KIND = WorkloadKind(
    name="shared_system_prompt_high_reuse",
    summary="a system prompt shared by all, templates of eight applications, one-off questions",
    seed=202,
    sessions=48,
    requests_per_session=6,
    capacity_tokens=220,
    draw=draw,
)
