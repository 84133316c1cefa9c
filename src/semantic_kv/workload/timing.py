"""When requests arrive: sessions side by side, with pauses; and which subject a session has."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.workload.interface import Plan


def side_by_side(plan: Plan, *, start_gap_ms: float, pause_ms: float) -> Iterator[tuple[int, int, float]]:
    """(session, turn, time): sessions begin about every ``start_gap_ms``, their turns follow after about ``pause_ms``.

    Both are exponential, as of independent users. Where the pause is long against the gap, sessions mix.
    """
    start_ms = 0.0
    for session in range(plan.sessions):
        at_ms = start_ms
        for turn in range(plan.requests_per_session):
            yield session, turn, at_ms
            at_ms += plan.random.expovariate(1.0 / pause_ms)
        start_ms += plan.random.expovariate(1.0 / start_gap_ms)


def dealt_evenly(plan: Plan, subjects: int) -> list[int]:
    """A subject for each session: every subject as often as the others, in an order drawn."""
    subject_of = [session % subjects for session in range(plan.sessions)]
    plan.random.shuffle(subject_of)
    return subject_of
