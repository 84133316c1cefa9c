"""EndpointSlices of one service (discovery.k8s.io/v1) -> endpoints. Parsing only; unreadable entries are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from semgate.fleet.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class SliceOptions:
    """``port_name`` selects the port of a slice (None: the first); announcement ports are numbers, 0 for none."""

    scheme: Literal["http", "https"] = "http"
    port_name: str | None = None
    events_port: int = 0
    replay_port: int = 0
    donors_port: int = 0


def endpoints_of(slices: Iterable[Mapping[str, Any]], options: SliceOptions) -> tuple[Endpoint, ...]:
    """Sorted by name. While slices are rebalanced a pod may be in two of them; the one that serves wins."""
    found: dict[str, Endpoint] = {}
    for each in slices:
        for endpoint in _in_slice(each, options):
            before = found.get(endpoint.name)
            if before is None or _rank(endpoint) > _rank(before):
                found[endpoint.name] = endpoint
    return tuple(found[name] for name in sorted(found))


def _rank(endpoint: Endpoint) -> tuple[bool, bool]:
    return not endpoint.terminating, endpoint.ready is not False


def _in_slice(record: Mapping[str, Any], options: SliceOptions) -> Iterable[Endpoint]:
    port = _port(record.get("ports"), options.port_name)
    if port is None:
        return
    for each in record.get("endpoints") or ():
        addresses = each.get("addresses") or ()
        if addresses:
            yield _endpoint(str(addresses[0]), port, each, options)


def _endpoint(address: str, port: int, record: Mapping[str, Any], options: SliceOptions) -> Endpoint:
    host = f"[{address}]" if ":" in address else address
    conditions = record.get("conditions") or {}
    reference = record.get("targetRef") or {}
    return Endpoint(
        name=str(reference.get("name") or f"{host}:{port}"),
        origin=f"{options.scheme}://{host}:{port}",
        events=_announced(host, options.events_port),
        replay=_announced(host, options.replay_port),
        donors=_announced(host, options.donors_port),
        ready=conditions.get("ready") is not False,  # by the API's definition, unknown means ready
        terminating=conditions.get("terminating") is True,
    )


def _port(ports: Any, name: str | None) -> int | None:
    for each in ports or ():
        if each.get("port") and (name is None or each.get("name") == name):
            return int(each["port"])
    return None


def _announced(host: str, port: int) -> str | None:
    return f"tcp://{host}:{port}" if port else None
