"""What a deployment may choose about fidelity, the same keys for every engine; and the gate they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sembase.errors import ConfigurationError
from semblend.contract import ReusePlan
from semblend.guard.verdicts import Verdicts
from semblend.integration.option_table import Option, OptionsOf, ceiling, flag, one_of, optional_share, path, whole
from semblend.plan.fidelity import Ceiling, FidelityGate
from semblend.plan.prediction import decode_prediction
from semblend.plan.selection import (
    LEAST_TO_CHOOSE_FROM,
    MAX_QUESTION_TOKENS,
    POLICIES,
    SHORT_PROMPT_SHARE,
    SHORT_PROMPT_TOKENS,
    Selection,
    needs_question,
    usual_share,
)

if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True, slots=True)
class FidelityOptions:
    verify_loads: bool = True
    select: str = "question_or_deviation"
    select_share: float | None = None
    select_bridge_tokens: int = 0
    calibration: Path | None = None
    max_predicted_kl: float | None = None
    guard_verdicts: Path | None = None

    def can_ask(self, plan: ReusePlan) -> bool:
        """Whether the policy can see what it reads: some need a question behind the claim, not too long."""
        return not needs_question(self.select) or 0 < plan.prompt_tokens - plan.claim_end <= MAX_QUESTION_TOKENS

    def share_of(self, plan: ReusePlan) -> float:
        """How much of what a plan loads is computed after all, where neither the gate nor the request says."""
        if self.select_share is not None:
            return self.select_share
        return usual_share(plan.runs) if self.can_ask(plan) else 0.0

    def step_tokens(self, plan: ReusePlan) -> int:
        """What a plan adds to a step: holes, chosen tokens, and the question where it is asked before."""
        is_asked = plan.compute_share and needs_question(self.select) and self.can_ask(plan)
        asked = plan.prompt_tokens - plan.claim_end if is_asked else 0
        return plan.computed_tokens + plan.chosen_tokens + asked

    def selection(self, share: float | None) -> Selection | None:
        """How ``share`` of the loaded positions is chosen to be computed after all; ``None`` when none are."""
        return Selection(self.select, share, self.select_bridge_tokens) if share else None

    def fidelity_gate(self, warn: Callable[..., Any]) -> FidelityGate:
        """What the calibration and the guard decide; a file that cannot be read stops the start-up."""
        limit = None
        if self.max_predicted_kl is not None:
            if self.calibration is None:
                raise ConfigurationError(
                    "max_predicted_kl needs a calibration: run `semblend calibrate` and name its file"
                )
            try:
                text = self.calibration.read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(f"calibration {self.calibration}: {error.strerror or error}") from None
            limit = Ceiling(decode_prediction(text), self.max_predicted_kl)
            if not limit.calibration.laws:
                warn("SemBlend: %s holds no measured law, so every blend is declined", self.calibration)
        verdicts = Verdicts(self.guard_verdicts, complain=warn) if self.guard_verdicts is not None else None
        return FidelityGate(verdicts, limit)


def fidelity_rows(table: OptionsOf[Any]) -> tuple[Option, ...]:
    """Their rows in an adapter's table of options."""
    return (
        table.option(
            "verify_loads",
            flag,
            "Compare some positions of every load with the model's own first layer; what is off is computed "
            "instead. With one worker only.",
        ),
        table.option(
            "select",
            one_of(*POLICIES.names()),
            "Which loaded tokens are computed after all, within `select_share`: see [fidelity](fidelity.md).",
        ),
        table.option(
            "select_share",
            optional_share,
            "Share of the loaded tokens that is computed after all; 0 computes none of them. "
            f"`null`: {SHORT_PROMPT_SHARE:g} of at least {LEAST_TO_CHOOSE_FROM} in the prompt's first "
            f"{SHORT_PROMPT_TOKENS:,}, none of fewer, of those further back, or where all are exact.",
        ),
        table.option(
            "select_bridge_tokens",
            whole(0),
            "Chosen tokens at most this far apart are joined within the same share: fewer, longer groups cost less.",
        ),
        table.option(
            "calibration",
            path,
            "File of `semblend calibrate`: with `max_predicted_kl`, each plan spends the smallest share that keeps its "
            "predicted KL under that ceiling, or declines as `quality_gate`.",
        ),
        table.option(
            "max_predicted_kl",
            ceiling,
            "Ceiling of the predicted KL, in nats; `null` leaves `select_share` in force. A request that names a "
            "`share` of its own is not judged by it.",
        ),
        table.option(
            "guard_verdicts",
            path,
            "File the guard writes (`semgate proxy --guard-file`): classes it turned off decline as "
            "`guard_off:<class>`; `null` reads none.",
        ),
    )
