"""The last gate: a plan goes in; it comes out with its budget, or declined because its class drifts or costs too much.

Called by adapters on the plan they are about to serve, after it was cut to what they can do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from sembase.errors import ConfigurationError
from semblend.contract import Decline, DeclineReason, PlanShape, ReusePlan, guard_off, risk_of_runs, shape_of
from semblend.plan.prediction import Calibration

MOST_SHARE: Final = 0.5  # beyond it the scattered forward costs more than cold prefill


class GuardVerdicts(Protocol):
    """What ``semblend.guard.verdicts.Verdicts`` says."""

    def why_off(self, model: str, shape: PlanShape) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Predicted KL at or under ``max_kl``, by a budget of at most ``most_share`` of the loaded tokens."""

    calibration: Calibration
    max_kl: float
    most_share: float = MOST_SHARE

    def __post_init__(self) -> None:
        if not self.max_kl > 0.0:
            raise ConfigurationError("the ceiling of the predicted KL is above 0")


@dataclass(frozen=True, slots=True)
class FidelityGate:
    """Either part may be missing; a gate of neither lets every plan through as it is."""

    verdicts: GuardVerdicts | None = None
    ceiling: Ceiling | None = None

    def without_budget(self) -> FidelityGate:
        """The same where nothing can be computed after all: a plan stays under the ceiling as it is, or declines."""
        return self if self.ceiling is None else replace(self, ceiling=replace(self.ceiling, most_share=0.0))

    def judge(self, plan: ReusePlan, model: str, asked_share: float | None = None) -> ReusePlan | Decline:
        """``model`` is the name the engine's answers carry. With ``asked_share``, a budget the request chose, the
        ceiling chooses none.

        A class that the guard has turned off is declined either way.
        """
        if self.verdicts is None and self.ceiling is None and asked_share is None:
            return plan
        shape = shape_of(plan.runs)
        why = self.verdicts.why_off(model, shape) if self.verdicts is not None else None
        if why is not None:
            return Decline(guard_off(shape), why, plan.discoveries)
        risk = risk_of_runs(plan.runs)
        if self.ceiling is None or asked_share is not None:
            return plan if asked_share is None else replace(plan, compute_share=asked_share)
        calibration, most = self.ceiling.calibration, self.ceiling.most_share
        share = calibration.smallest_share(shape, risk, self.ceiling.max_kl, most)
        if share is None:
            least = calibration.predicted_kl(shape, risk, most)
            said = (
                "nothing was measured for it" if least is None else f"predicted KL {least:.4f} at a share of {most:g}"
            )
            detail = f"{shape.value} at risk {risk:.3f}: {said}, ceiling {self.ceiling.max_kl:g}"
            return Decline(DeclineReason.QUALITY_GATE, detail, plan.discoveries)
        return replace(plan, compute_share=share, predicted_kl=calibration.predicted_kl(shape, risk, share))


OPEN: Final = FidelityGate()
