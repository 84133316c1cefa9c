"""Chats side by side: every turn's prompt is the whole conversation so far, so its prefix was the last prompt."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import DrawnRequest, Part, Plan, WorkloadKind
from semantic_kv.workload.timing import side_by_side


def draw(plan: Plan) -> Iterator[DrawnRequest]:
    write = plan.writer
    system = ("system", write.text(120))
    history: dict[int, tuple[Part, ...]] = {}
    for session, _, at_ms in side_by_side(plan, start_gap_ms=5_000, pause_ms=30_000):
        prompt = (*history.get(session, (system,)), ("user", write.text_between(15, 120)))
        answer_tokens = plan.random.randint(40, 200)
        history[session] = (*prompt, ("assistant", write.text(answer_tokens)))
        yield DrawnRequest(session, at_ms, prompt, answer_tokens)


KIND = WorkloadKind(
    name="multi_turn_chat",
    summary="conversations that grow turn by turn, side by side",
    seed=11,
    sessions=40,
    requests_per_session=8,
    capacity_tokens=6000,
    draw=draw,
)
