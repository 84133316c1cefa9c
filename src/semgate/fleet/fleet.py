"""The replicas by name, each with a slot in the indexes. Discovery provides endpoints, placement reads views."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from sembase.errors import ConfigurationError
from semgate.fleet.breaker import BreakerOptions
from semgate.fleet.endpoint import Endpoint
from semgate.fleet.replica import Replica
from semgate.placement.view import ReplicaView


class Fleet:
    """A replica that discovery no longer lists is removed at once: its requests in flight continue, and its slot is
    freed after ``on_remove`` (which clears the indexes). If it returns under its name it starts cold."""

    def __init__(
        self,
        *,
        max_replicas: int = 256,
        breaker: BreakerOptions | None = None,
        on_add: Callable[[Replica], None] | None = None,
        on_remove: Callable[[Replica], None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_replicas = max_replicas
        self._breaker = breaker
        self._on_add = on_add
        self._on_remove = on_remove
        self._clock_s = clock_s
        self._replicas: dict[str, Replica] = {}

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def find(self, name: str) -> Replica | None:
        return self._replicas.get(name)

    def views(self) -> list[ReplicaView]:
        return [each.view() for each in self._replicas.values()]

    def apply(self, endpoints: Iterable[Endpoint]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Make the fleet exactly these; returns the names added and removed. All or nothing."""
        wanted: dict[str, Endpoint] = {}
        for each in endpoints:
            if each.name in wanted:
                raise ConfigurationError(f"two replicas are named '{each.name}'; names must be unique")
            wanted[each.name] = each
        if len(wanted) > self._max_replicas:
            raise ConfigurationError(f"{len(wanted)} replicas given, at most {self._max_replicas} are allowed")
        # A new origin or new announcement addresses under an old name mean another process with another cache.
        gone = [name for name, each in self._replicas.items() if name not in wanted or _moved(each, wanted[name])]
        for name in gone:
            replica = self._replicas.pop(name)
            if self._on_remove is not None:
                self._on_remove(replica)
        added = [name for name in wanted if name not in self._replicas]
        for name, endpoint in wanted.items():
            if name in self._replicas:
                self._replicas[name].update(endpoint)
            else:
                self._add(endpoint)
        return tuple(added), tuple(gone)

    def _add(self, endpoint: Endpoint) -> None:
        taken = {each.slot for each in self._replicas.values()}
        slot = next(slot for slot in range(self._max_replicas) if slot not in taken)
        replica = Replica(endpoint, slot, self._breaker, self._clock_s)
        self._replicas[endpoint.name] = replica
        if self._on_add is not None:
            self._on_add(replica)


def _moved(replica: Replica, endpoint: Endpoint) -> bool:
    old = replica.endpoint
    return (old.origin, old.events, old.replay, old.donors) != (
        endpoint.origin,
        endpoint.events,
        endpoint.replay,
        endpoint.donors,
    )
