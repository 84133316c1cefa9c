"""Whole sessions out of the items of ``planted``: items in, sessions of turns in their order out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sembench.manifest import WorkloadItem

_TURNS_BEFORE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """``answer`` is the recorded one, which later prompts contain. ``since_break`` is 0 where the prefix breaks.

    ``stale_answer`` is what KV from before the break would answer; only turns that ask for a changed fact have one.
    """

    turn: int
    prompt: str
    answer: str
    think_s: float
    since_break: int | None
    is_tool_call: bool
    stale_answer: str | None


@dataclass(frozen=True, slots=True)
class ReplaySession:
    session_id: str
    tenant: str
    kind: str
    turns: tuple[SessionTurn, ...]

    def around_break(self, count: int) -> ReplaySession:
        """At most ``count`` turns, two of them before the first break if there are as many."""
        broken = next((place for place, turn in enumerate(self.turns) if turn.since_break == 0), 0)
        start = max(0, min(broken - _TURNS_BEFORE, len(self.turns) - count))
        return ReplaySession(self.session_id, self.tenant, self.kind, self.turns[start : start + count])


def sessions_of(items: Iterable[WorkloadItem]) -> list[ReplaySession]:
    """Sessions in the order of their first item."""
    turns: dict[tuple[str, str], list[SessionTurn]] = {}
    about: dict[tuple[str, str], tuple[str, str]] = {}
    for item in items:
        known = item.metadata
        assert item.tenant is not None  # every planted session has its own
        key = (item.dataset, str(known["session_id"]))
        about.setdefault(key, (item.tenant, str(known["break"])))
        turns.setdefault(key, []).append(_turn(item, known))
    return [
        ReplaySession(f"{dataset}/{name}", *about[dataset, name], _ordered(own))
        for (dataset, name), own in turns.items()
    ]


def _turn(item: WorkloadItem, known: Any) -> SessionTurn:
    return SessionTurn(
        turn=int(known["turn"]),
        prompt=item.recipient_prompt,
        answer=item.answers[0] if item.answers else "",
        think_s=float(known["think_s"]),
        since_break=known.get("turns_since_break"),
        is_tool_call=bool(known.get("is_tool_call")),
        stale_answer=known.get("stale_answer"),
    )


def _ordered(turns: Sequence[SessionTurn]) -> tuple[SessionTurn, ...]:
    return tuple(sorted(turns, key=lambda turn: turn.turn))
