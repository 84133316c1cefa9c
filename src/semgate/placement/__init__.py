"""Which replica takes a request, in milliseconds: predicted prefill saved minus queueing added.

``Placer.decide(PlacementRequest, views of the fleet) -> Decision``; ``Placer.observe(Observed)`` after a first token.
"""

from semgate.placement.affinity import SessionHomes
from semgate.placement.cost import Price, price_from_calibration, price_of
from semgate.placement.decision import Decision, NoUsableReplicaError, RoutePath
from semgate.placement.placer import Placer
from semgate.placement.policy.interface import PolicyOptions
from semgate.placement.policy.registry import POLICIES
from semgate.placement.view import Content, Observed, PlacementRequest, ReplicaState, ReplicaView

__all__ = [
    "POLICIES",
    "Content",
    "Decision",
    "NoUsableReplicaError",
    "Observed",
    "PlacementRequest",
    "Placer",
    "PolicyOptions",
    "Price",
    "ReplicaState",
    "ReplicaView",
    "RoutePath",
    "SessionHomes",
    "price_from_calibration",
    "price_of",
]
