"""Route evidence in a reply's headers: what a router says it did with the request. The first header present wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_OUTCOME: Final = (
    "x-semblend-routing-path",
    "x-semrouter-path",
    "x-semantic-route",
    "x-gateway-route",
    "x-route",
)
_WORKER: Final = "x-semblend-routing-worker"
_SIMILARITY: Final = "x-semblend-routing-similarity"
_ALIASES: Final = {
    "semantic": "semantic_placement",
    "cold": "cold_route",
    "exact": "exact_route",
    "fail_open": "error_fallback",
}


@dataclass(frozen=True, slots=True)
class Route:
    """None where the router said nothing."""

    outcome: str | None = None
    worker: str | None = None
    similarity: float | None = None


def route_of(headers: Mapping[str, str]) -> Route:
    said = next((headers[name].strip() for name in _OUTCOME if headers.get(name, "").strip()), None)
    outcome = None if said is None else _ALIASES.get(said.lower(), said.lower())
    return Route(outcome, headers.get(_WORKER) or None, _similarity(headers.get(_SIMILARITY)))


def _similarity(text: str | None) -> float | None:
    """A row holds no negative figures; a similarity that is none of 0 to 1 was not measured."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None
