"""The last gate: a plan goes in; it comes out with its recompute budget, or declined because its class drifts or lost
answers when it was measured.

Adapters call it on the plan they are about to serve, after cutting the plan to what the engine supports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from semblend.contract import Decline, DeclineReason, PlanShape, ReusePlan, guard_off, shape_of
from semblend.contract.answer_budgets import AnswerBudgets, Budget, lowest_lost, smallest_of_all
from semblend.contract.shape import MOVED_SHARE
from semblend.plan.selection import is_moved

if TYPE_CHECKING:
    from semblend.plan.gates import Gates

_NOT_MEASURED: Final = "answers were not measured for moved passages in prompts of this class and length"
_NONE_IN_COMMON: Final = "no measured fraction keeps the answers of reordered and of composed passages"
_TOO_SHORT: Final = "what can be served of the moved passages is shorter than min_moved_tokens"


class GuardVerdicts(Protocol):
    """Implemented by ``semblend.guard.verdicts.Verdicts``."""

    def why_off(self, model: str, shape: PlanShape) -> str | None: ...


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """Recompute the smallest measured fraction that likely loses at most ``max_loss`` of the right answers.

    ``can_select`` off: no tokens can be recomputed, so a class that needs some is left to the defaults, and one that
    lost its answers with any measured fraction is declined all the same.
    """

    measured: AnswerBudgets
    max_loss: float
    can_select: bool = True

    def min_moved_tokens(self, plan: ReusePlan) -> int:
        """The shortest moved run that the measured budgets keep the answers with; 0: they keep none, or are missing."""
        found = self._budgets(plan)
        known = [one for one in found if one is not None]
        is_kept = len(known) == len(found) and smallest_of_all(known, self.max_loss) is not None
        return max(one.min_moved_tokens for one in known) if self.can_select and is_kept else 0

    def judge(self, plan: ReusePlan) -> float | Decline | None:
        """The fraction to recompute, a decline if no measured one keeps the answers, or None: not measured."""
        found = self._budgets(plan)
        known = [one for one in found if one is not None]
        if (failed := next((one for one in known if one.smallest(self.max_loss) is None), None)) is not None:
            return Decline(DeclineReason.QUALITY_GATE, self._why(failed), plan.discoveries)
        if len(known) < len(found) or not self.can_select:
            return None
        fraction = smallest_of_all(known, self.max_loss)
        return Decline(DeclineReason.QUALITY_GATE, _NONE_IN_COMMON, plan.discoveries) if fraction is None else fraction

    def _why(self, failed: Budget) -> str:
        nearest = lowest_lost(failed.trials)
        where = f"{failed.shape.value} up to {failed.up_to_tokens} tokens, {nearest.fraction:g} recomputed"
        if nearest.likely_loss > self.max_loss:
            counted = (
                f"{nearest.lost} of {nearest.items} answers were lost and {nearest.gained} gained when it was measured"
            )
            return f"{where}: {counted}, likely loss {nearest.likely_loss:.3f}; max_answer_loss is {self.max_loss:g}"
        return f"{where}: slower than cold when it was measured (cold over ours {nearest.speedup:.2f})"

    def _budgets(self, plan: ReusePlan) -> list[Budget | None]:
        """Moved runs that keep one donor's order were not measured by themselves: both other classes must hold."""
        if all(run.is_exact for run in plan.runs):
            return [None]  # nothing of it can change an answer
        shape, has_moved = shape_of(plan.runs), any(is_moved(run) for run in plan.runs)
        in_order = shape in (PlanShape.NEW_INSTRUCTION, PlanShape.EDIT)
        shapes = (PlanShape.REORDER, PlanShape.COMPOSITION) if has_moved and in_order else (shape,)
        if not has_moved and not in_order:
            return [None]  # several donors or another order, but hardly another context
        return [self.measured.of(each, plan.prompt_tokens) for each in shapes]


@dataclass(frozen=True, slots=True)
class FidelityGate:
    """Each part may be missing; a gate with none passes every plan unchanged."""

    verdicts: GuardVerdicts | None = None
    answers: AnswerLimit | None = None

    def without_budget(self) -> FidelityGate:
        """The same gate for an engine that cannot recompute."""
        answers = None if self.answers is None else replace(self.answers, can_select=False)
        return replace(self, answers=answers)

    def limits(self, plan: ReusePlan, gates: Gates) -> Gates:
        """The gates that hold for the runs of this plan: where answers were measured, only what kept them is moved.

        How long a moved run must be is the longer of what was measured and what is configured.
        """
        if self.answers is None:
            return gates
        least = self.answers.min_moved_tokens(plan)
        least = max(least, gates.min_moved_tokens) if least else 0
        return replace(gates, max_context_share=min(gates.max_context_share, MOVED_SHARE), min_moved_tokens=least)

    def why_not_moved(self, plan: ReusePlan) -> Decline:
        """The decline of a plan of which ``limits`` leaves nothing."""
        judged = self.answers.judge(plan) if self.answers is not None else None
        if isinstance(judged, Decline):
            return judged
        detail = _NOT_MEASURED if self.answers is not None else _TOO_SHORT
        return Decline(DeclineReason.CONTEXT_RISK, detail, plan.discoveries)

    def judge(self, plan: ReusePlan, model: str, requested_fraction: float | None = None) -> ReusePlan | Decline:
        """The plan with its ``recompute_fraction``, or a decline. ``model`` is the name in the engine's answers.

        A ``requested_fraction``, set by the request itself, is used as it is. A class that the guard turned off is
        declined in either case.
        """
        if self == OPEN and requested_fraction is None:
            return plan
        shape = shape_of(plan.runs)
        why = self.verdicts.why_off(model, shape) if self.verdicts is not None else None
        if why is not None:
            return Decline(guard_off(shape), why, plan.discoveries)
        if requested_fraction is not None:
            return replace(plan, recompute_fraction=requested_fraction)
        measured = self.answers.judge(plan) if self.answers is not None else None
        if isinstance(measured, Decline):
            return measured
        return plan if measured is None else replace(plan, recompute_fraction=measured)


OPEN: Final = FidelityGate()
