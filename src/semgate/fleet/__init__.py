"""The replicas: where they are, how busy, how healthy; and where the list of them comes from."""

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
