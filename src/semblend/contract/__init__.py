"""Records that packages and processes exchange. Standard library only, so that any package can import them."""

from semblend.contract.event import (
    CONTRACT_VERSION,
    Declined,
    DonorEvicted,
    DonorRegistered,
    Event,
    EventFormatError,
    EventLine,
    FaultContained,
    GuardChecked,
    GuardTurnedOff,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    decode_line,
    encode_line,
)
from semblend.contract.namespace import UNKNOWN, Namespace
from semblend.contract.outcome import DeclineReason, Evidence, Outcome
from semblend.contract.plan import ContextRisk, Decline, Discovery, ReusePlan, Run, TokenRange
from semblend.contract.shape import PlanShape, guard_off, risk_of_runs, shape_of

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
    "GuardChecked",
    "GuardTurnedOff",
    "LoadAdvertised",
    "LookupFinished",
    "Materialized",
    "Namespace",
    "Outcome",
    "PlanShape",
    "ReusePlan",
    "Run",
    "TokenRange",
    "decode_line",
    "encode_line",
    "guard_off",
    "risk_of_runs",
    "shape_of",
]
