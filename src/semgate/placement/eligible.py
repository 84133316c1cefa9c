"""Which replicas may take a request: ready ones; without any, half-open ones, then those whose health check fails.

With every breaker open a request still tries one replica, which may have recovered, but never a second one. A draining
replica is never a candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from semgate.placement.decision import NoUsableReplicaError
from semgate.placement.view import ReplicaState, ReplicaView

_LAST_RESORTS: tuple[ReplicaState, ...] = ("half_open", "unhealthy", "open")

_STATE_NAMES = {"half_open": "half-open", "unhealthy": "unhealthy", "open": "open-breaker"}


def eligible(fleet: Sequence[ReplicaView], tried: frozenset[str]) -> tuple[Sequence[ReplicaView], str | None]:
    """The candidates, and why they are a last resort (None: they are not)."""
    ready = [each for each in fleet if each.state == "ready"]
    if tried:
        ready = [each for each in ready if each.name not in tried]
    if ready:
        return ready, None
    for state in _LAST_RESORTS:
        left = [each for each in fleet if each.state == state and each.name not in tried]
        if left and not (state == "open" and tried):
            return left, f"no replica is ready ({_count_states(fleet, tried)}); trying the {_STATE_NAMES[state]} ones"
    raise NoUsableReplicaError(f"no replica can take the request ({_count_states(fleet, tried)})")


def trial_due(fleet: Sequence[ReplicaView], tried: frozenset[str]) -> ReplicaView | None:
    """A half-open replica that needs a request to close its breaker. None for a request that has already failed."""
    if tried:
        return None
    return next((each for each in fleet if each.trial_due and each.state == "half_open"), None)


def _count_states(fleet: Sequence[ReplicaView], tried: frozenset[str]) -> str:
    states = Counter("already tried" if each.name in tried else each.state for each in fleet)
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "the fleet is empty"
