"""What a server would do by the answer budgets of its model: a line of the report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from semblend.integration.answer_budgets import open_budgets

if TYPE_CHECKING:
    from semblend.contract.answer_budgets import Budget
    from semblend.integration.fidelity_options import FidelityOptions
    from semblend.plan.gates import Gates

FACT: Final = "answer budgets"
_NONE: Final = "none (`kvmend bench answer-budgets` measures which passages in another place this model can reuse)"


def describe_budgets(options: FidelityOptions, gates: Gates, engine: str, model: str) -> str:
    """Raises ``ConfigurationError`` for a file that an option names and that is not of this model and policy."""
    warnings: list[str] = []
    log = logging.Logger("semblend.doctor")
    log.addHandler(_Collector(warnings))
    budgets = open_budgets(options, gates, engine, model, log)
    parts = [] if budgets is None else [_summary_of(one, options.max_answer_loss) for one in budgets.budgets]
    return "; ".join(warnings + parts) or _NONE


def _summary_of(budget: Budget, max_loss: float) -> str:
    trial = budget.smallest(max_loss)
    what = "declined" if trial is None else f"{100 * trial.fraction:g} % recomputed"
    return f"{budget.shape.value} up to {budget.up_to_tokens:,} tokens {what}"


class _Collector(logging.Handler):
    def __init__(self, warnings: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._warnings = warnings

    def emit(self, record: logging.LogRecord) -> None:
        self._warnings.append(record.getMessage())
