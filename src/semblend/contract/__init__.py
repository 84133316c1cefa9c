"""Records that cross a border. Standard library only, so that anybody may import them."""

from semblend.contract.event import (
    CONTRACT_VERSION,
    Declined,
    DonorEvicted,
    DonorRegistered,
    Event,
    EventFormatError,
    EventLine,
    FaultContained,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    decode_line,
    encode_line,
)
from semblend.contract.namespace import UNKNOWN, Namespace
from semblend.contract.outcome import DeclineReason, Evidence, Outcome
from semblend.contract.plan import ContextRisk, Decline, Discovery, ReusePlan, Run, TokenRange

__all__ = [
    "CONTRACT_VERSION",
    "UNKNOWN",
    "ContextRisk",
    "Decline",
    "DeclineReason",
    "Declined",
    "Discovery",
    "DonorEvicted",
    "DonorRegistered",
    "Event",
    "EventFormatError",
    "EventLine",
    "Evidence",
    "FaultContained",
    "LoadAdvertised",
    "LookupFinished",
    "Materialized",
    "Namespace",
    "Outcome",
    "ReusePlan",
    "Run",
    "TokenRange",
    "decode_line",
    "encode_line",
]
