"""The fleet as the operator sees it: replicas set as a whole, drained by name, listed; listeners get each change.

In: endpoints from the settings, the admin surface or Kubernetes; out: what was added and removed. A replica drained
by name stays drained when the list is reloaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sembase.errors import ConfigurationError
from semgate.fleet import Endpoint, Fleet, Replica


class Listener(Protocol):
    """Anything with state per replica: indexes, event feeds, the policy. The fleet assigns the lowest free slot."""

    def replica_added(self, replica: Replica) -> None: ...

    def replica_removed(self, replica: Replica) -> None: ...

    def cache_lost(self, replica: Replica) -> None:
        """The replica's process is gone; a new one under its name starts with an empty cache."""


@dataclass(frozen=True, slots=True)
class Change:
    added: tuple[str, ...]
    removed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "needs_restart": list(self.needs_restart),
        }


class Roster:
    def __init__(self, listeners: Iterable[Listener] = (), max_replicas: int = 256) -> None:
        self._listeners = tuple(listeners)
        self._drained: set[str] = set()
        self._drain_changes: dict[str, bool] = {}
        self._was_healthy: set[str] = set()
        self._lost: set[str] = set()  # has not answered since its cache was lost
        self.fleet = Fleet(max_replicas=max_replicas, on_add=self._added, on_remove=self._removed)

    def apply(self, endpoints: Iterable[Endpoint]) -> Change:
        before = {replica.name for replica in self.fleet}
        added, removed = self.fleet.apply(endpoints)
        self._drained -= before - {replica.name for replica in self.fleet}
        return Change(added, removed)

    def set_draining(self, name: str, *, draining: bool) -> None:
        replica = self.fleet.find(name)
        if replica is None:
            known = ", ".join(each.name for each in self.fleet) or "none"
            raise ConfigurationError(f"unknown replica '{name}'; known: {known}")
        replica.draining = draining
        (self._drained.add if draining else self._drained.discard)(name)
        self._drain_changes[name] = draining

    def take_drain_changes(self) -> dict[str, bool]:
        """Drained or not, by name, since the last call; for the other routers."""
        changes, self._drain_changes = self._drain_changes, {}
        return changes

    def set_drained(self, names: Iterable[str]) -> None:
        """What all routers agreed on. A name that is not in the fleet yet is drained when it comes."""
        self._drained = set(names)
        for replica in self.fleet:
            replica.draining = replica.name in self._drained

    def note_health(self) -> None:
        """Called after each round of health checks: a replica that stopped answering has lost its cache."""
        for replica in self.fleet:
            if replica.healthy:
                self._was_healthy.add(replica.name)
            elif replica.name in self._was_healthy:
                self._was_healthy.discard(replica.name)
                self.cache_lost(replica)

    def cache_lost(self, replica: Replica) -> None:
        """Notifies listeners once until the replica answers again. Ignored if the replica has left the fleet."""
        if self.fleet.find(replica.name) is not replica or replica.name in self._lost:
            return
        self._lost.add(replica.name)
        for listener in self._listeners:
            listener.cache_lost(replica)

    def note_answer(self, replica: Replica) -> bool:
        """The replica answered. Returns False if it is no longer in the fleet."""
        if self.fleet.find(replica.name) is not replica:
            return False
        self._lost.discard(replica.name)
        return True

    def listed(self) -> list[dict[str, Any]]:
        return [
            {
                "name": replica.name,
                "origin": replica.endpoint.origin,
                "state": replica.state(),
                "in_flight": replica.in_flight,
                "queued_prefill_tokens": replica.queued_prefill_tokens,
                "engine_load": None if replica.engine_load is None else asdict(replica.engine_load),
                "breaker_opened": replica.breaker.opened,
                "events": replica.endpoint.events,
                "donors": replica.endpoint.donors,
            }
            for replica in self.fleet
        ]

    def _added(self, replica: Replica) -> None:
        replica.draining = replica.name in self._drained
        for listener in self._listeners:
            listener.replica_added(replica)

    def _removed(self, replica: Replica) -> None:
        self._was_healthy.discard(replica.name)
        self._lost.discard(replica.name)
        for listener in self._listeners:
            listener.replica_removed(replica)
