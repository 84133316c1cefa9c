"""The replicas: their addresses, load and health, and the sources of the replica list."""

from semgate.fleet.breaker import Breaker, BreakerOptions
from semgate.fleet.endpoint import Endpoint
from semgate.fleet.fleet import Fleet
from semgate.fleet.health import HealthChecks, HealthOptions
from semgate.fleet.load import Ticket
from semgate.fleet.replica import Replica

__all__ = [
    "Breaker",
    "BreakerOptions",
    "Endpoint",
    "Fleet",
    "HealthChecks",
    "HealthOptions",
    "Replica",
    "Ticket",
]
