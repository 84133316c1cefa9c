"""The last gate: a plan goes in; it comes out with its recompute budget, or declined because its class drifts or
its predicted KL is too high.

Adapters call it on the plan they are about to serve, after cutting the plan to what the engine supports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from sembase.errors import ConfigurationError
from semblend.contract import Decline, DeclineReason, PlanShape, ReusePlan, guard_off, risk_of_runs, shape_of
from semblend.plan.prediction import Calibration, Law

MAX_FRACTION: Final = 0.5  # above it the sparse forward costs more than a cold prefill


class GuardVerdicts(Protocol):
    """Implemented by ``semblend.guard.verdicts.Verdicts``."""

    def why_off(self, model: str, shape: PlanShape) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Keep the predicted KL at or below ``max_kl`` by recomputing at most ``max_fraction`` of the reused tokens."""

    calibration: Calibration
    max_kl: float
    max_fraction: float = MAX_FRACTION

    def __post_init__(self) -> None:
        if not self.max_kl > 0.0:
            raise ConfigurationError("max_predicted_kl must be greater than 0")


@dataclass(frozen=True, slots=True)
class FidelityGate:
    """Either part may be missing; a gate with neither passes every plan unchanged."""

    verdicts: GuardVerdicts | None = None
    ceiling: Ceiling | None = None

    def without_budget(self) -> FidelityGate:
        """The same gate for an engine that cannot recompute: a plan predicted above the ceiling is declined."""
        return self if self.ceiling is None else replace(self, ceiling=replace(self.ceiling, max_fraction=0.0))

    def judge(self, plan: ReusePlan, model: str, requested_fraction: float | None = None) -> ReusePlan | Decline:
        """The plan with its ``recompute_fraction``, or a decline. ``model`` is the name in the engine's answers.

        A ``requested_fraction``, set by the request itself, is used as it is, and the ceiling is not applied. A class
        that the guard turned off is declined in either case.
        """
        if self.verdicts is None and self.ceiling is None and requested_fraction is None:
            return plan
        shape = shape_of(plan.runs)
        why = self.verdicts.why_off(model, shape) if self.verdicts is not None else None
        if why is not None:
            return Decline(guard_off(shape), why, plan.discoveries)
        risk = risk_of_runs(plan.runs)
        if self.ceiling is None or requested_fraction is not None:
            return plan if requested_fraction is None else replace(plan, recompute_fraction=requested_fraction)
        calibration, max_fraction = self.ceiling.calibration, self.ceiling.max_fraction
        fraction = calibration.min_fraction(shape, risk, self.ceiling.max_kl, max_fraction)
        if fraction is None:
            lowest = calibration.predicted_kl(shape, risk, max_fraction)
            if lowest is None:
                reason, why = DeclineReason.NOT_CALIBRATED, _unmeasured(calibration.laws.get(shape))
            else:
                reason = DeclineReason.QUALITY_GATE
                why = f"predicted KL {lowest:.4f} with {max_fraction:g} recomputed, ceiling {self.ceiling.max_kl:g}"
            return Decline(reason, f"{shape.value} at risk {risk:.3f}: {why}", plan.discoveries)
        predicted = calibration.predicted_kl(shape, risk, fraction)
        return replace(plan, recompute_fraction=fraction, predicted_kl=predicted)


def _unmeasured(law: Law | None) -> str:
    if law is None:
        return "the calibration has no law for this class; run kvmend calibrate with more --items"
    return f"the calibration reaches {law.largest_risk:.3f}; run kvmend calibrate with a larger --longest"


OPEN: Final = FidelityGate()
