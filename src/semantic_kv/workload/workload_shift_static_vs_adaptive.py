"""A shift half-way: first retrieval over shared documents, then code review over shared files with other instructions.

Large one-off user texts churn the cache all the time. What was worth keeping before the shift is worthless after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Part, Plan, WorkloadKind
from semantic_kv.workload.timing import dealt_evenly, side_by_side

SUBJECTS = 4


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer

    def phase(label: str) -> list[tuple[Part, ...]]:
        """The shared beginning of a prompt on each of the phase's subjects."""
        shared: tuple[Part, ...] = (("system", write.text(60)), ("template", write.text(100)))
        return [(*shared, (label, write.text(420))) for _ in range(SUBJECTS)]

    before, after = phase("retrieved_context"), phase("code")
    subject_of = dealt_evenly(plan, SUBJECTS)
    requests = list(side_by_side(plan, start_gap_ms=2_000, pause_ms=8_000))
    shift_session = plan.sessions // 2
    pause_ms = max(at_ms for session, _, at_ms in requests if session < shift_session) if shift_session else 0.0
    for session, _, at_ms in requests:
        is_after = session >= shift_session
        parts = (*(after if is_after else before)[subject_of[session]], ("user", write.text_between(120, 360)))
        yield DrawnRequest(session, at_ms + (pause_ms if is_after else 0.0), parts, plan.random.randint(40, 160))


KIND = WorkloadKind(
    name="workload_shift_static_vs_adaptive",
    summary="shared documents, then shared code: the reusable set changes half-way under one-off churn",
    seed=505,
    sessions=44,
    requests_per_session=6,
    capacity_tokens=2700,
    draw=draw,
)
