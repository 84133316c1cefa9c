"""What a deployment may choose about fidelity, the same keys for every engine; and the gate they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from sembase.settings import setting
from sembase.values import count, flag, fraction, one_of, optional, path, text
from semblend.contract import ReusePlan
from semblend.contract.answer_budgets import FILE_NAME, LOSS_ERRORS, MAX_ANSWER_LOSS, AnswerBudgets
from semblend.contract.shape import MOVED_SHARE
from semblend.guard.verdicts import Verdicts
from semblend.integration.answer_budgets import AUTO, NONE, OWN_GATES, OWN_OPTIONS
from semblend.integration.shared_options import AdapterOptions
from semblend.plan.fidelity import AnswerLimit, FidelityGate
from semblend.plan.selection import (
    DEFAULT_POLICY,
    MIN_SELECTABLE_TOKENS,
    MOVED_FRACTION,
    POLICIES,
    SHORT_PROMPT_FRACTION,
    SHORT_PROMPT_TOKENS,
    Selection,
    default_recompute_fraction,
    is_question,
    needs_question,
)

if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True, slots=True)
class FidelityOptions(AdapterOptions):
    removed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("calibration", "max_predicted_kl"), "measure answers with `kvmend bench answer-budgets` (answer_budgets)"
    )

    verify_loads: bool = setting(
        True,
        flag,
        "Compare some positions of every load with the model's own first layer and recompute those that differ.",
    )
    recompute_policy: str = setting(
        DEFAULT_POLICY,
        one_of(*POLICIES.names()),
        "Policy that picks which reused tokens to recompute, within `recompute_fraction`: see [fidelity](fidelity.md). "
        "Yours register under the entry point `semblend.selection`.",
    )
    recompute_fraction: float | None = setting(
        None,
        optional(fraction),
        "Fraction of reused tokens to recompute. 0 disables recomputation. "
        f"`null`: {MOVED_FRACTION:g} if a run is reused whose mean fraction of differing context is above "
        f"{MOVED_SHARE:g}; {SHORT_PROMPT_FRACTION:g} if at least {MIN_SELECTABLE_TOKENS} tokens are reused, not all of "
        f"them exact, and the last of them before position {SHORT_PROMPT_TOKENS:,}; 0 otherwise.",
    )
    recompute_bridge_tokens: int = setting(
        0,
        count,
        "Recomputed tokens at most this far apart are joined into one group, within the same fraction. Fewer, longer "
        "groups cost less.",
    )
    answer_budgets: str = setting(
        AUTO,
        text,
        "File written by `kvmend bench answer-budgets`. Each measured class and length recomputes the smallest "
        "fraction that kept the model's answers, or declines as `quality_gate`; long passages in another place are "
        f'served where one did. `"{AUTO}"`: `{FILE_NAME}` in the model\'s folder, if it is there and none of '
        f"{', '.join(f'`{name}`' for name in (*OWN_OPTIONS, *OWN_GATES))} is set; "
        f'`"{NONE}"`: none.',
    )
    max_answer_loss: float = setting(
        MAX_ANSWER_LOSS,
        fraction,
        "Largest likely net loss of right answers at which a measured fraction is used, as a fraction of all "
        f"questions: lost minus gained answers plus {LOSS_ERRORS:g} standard errors, so that a small sample does not "
        "pass. The true loss is larger with a chance of one in four. No effect without answer budgets.",
    )
    guard_verdicts: Path | None = setting(
        None,
        optional(path),
        "File the guard writes (`kvmend proxy --guard-file`). Classes it turned off decline as "
        "`guard_off:<class>`. `null` reads none.",
    )

    refresh_on_repeat: bool = setting(
        True,
        flag,
        "Serve a passage without a donor of its own cold once when it repeats, so that this request becomes its donor.",
    )
    recompute_all: bool = setting(
        False,
        flag,
        "Diagnosis: claim as planned, but load nothing and compute the whole claim with the pass that fills gaps. "
        "Answers must equal those of cold prefill.",
    )

    def can_ask(self, plan: ReusePlan) -> bool:
        """Whether the policy has what it needs: some need a question after the claim, and not too long a one."""
        return not needs_question(self.recompute_policy) or is_question(plan.prompt_tokens - plan.claim_end)

    def fraction_of(self, plan: ReusePlan) -> float:
        """The fraction of a plan's tokens to recompute, where neither the gate nor the request sets it."""
        if self.recompute_fraction is not None:
            return self.recompute_fraction
        return default_recompute_fraction(plan.runs) if self.can_ask(plan) else 0.0

    def asked_tokens(self, plan: ReusePlan) -> int:
        """The question, where recomputed tokens are selected by it; 0: by none."""
        is_asked = plan.recompute_fraction and needs_question(self.recompute_policy) and self.can_ask(plan)
        return plan.prompt_tokens - plan.claim_end if is_asked else 0

    def step_tokens(self, plan: ReusePlan) -> int:
        """Tokens a plan adds to a step: gaps, recomputed tokens, and the question where the policy needs it first."""
        return plan.computed_tokens + plan.max_recomputed_tokens + self.asked_tokens(plan)

    def selection(self, fraction: float | None) -> Selection | None:
        """How ``fraction`` of the loaded positions is selected to be recomputed; ``None`` when none are."""
        return Selection(self.recompute_policy, fraction, self.recompute_bridge_tokens) if fraction else None

    def fidelity_gate(self, warn: Callable[..., Any], budgets: AnswerBudgets | None = None) -> FidelityGate:
        """What measured answers and the guard decide; a file that cannot be read stops the start-up."""
        verdicts = Verdicts(self.guard_verdicts, warn=warn) if self.guard_verdicts is not None else None
        answers = AnswerLimit(budgets, self.max_answer_loss) if budgets is not None else None
        return FidelityGate(verdicts, answers)
