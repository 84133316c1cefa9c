"""The answer budgets of a server: measured by ``kvmend bench answer-budgets``, found in the model's folder or named."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sembase.errors import ConfigurationError
from semblend.contract.answer_budgets import FILE_NAME, AnswerBudgets, decode_budgets
from semblend.contract.model_folder import weights_mark
from semblend.plan.gates import ADAPTER_GATES, Gates

if TYPE_CHECKING:
    from semblend.integration.fidelity_options import FidelityOptions

AUTO: Final = "auto"
NONE: Final = "none"
OWN_OPTIONS: Final = ("recompute_fraction", "recompute_bridge_tokens")
OWN_GATES: Final = ("max_context_share", "min_moved_tokens", "boundary_recompute_tokens")
"""A deployment that sets one of these decides by itself what is reused and recomputed."""


def open_budgets(
    options: FidelityOptions, gates: Gates, engine: str, model: str, log: logging.Logger
) -> AnswerBudgets | None:
    """``gates`` are those of the deployment, ``model`` is the folder or the name that the engine serves.

    A file that was named must be of this model, engine and policy, or the start-up stops. One that was found is left
    out with a warning, and where the deployment sets by itself what is reused or recomputed.
    """
    if options.answer_budgets == NONE:
        return None
    is_found = options.answer_budgets == AUTO
    path = Path(model) / FILE_NAME if is_found else Path(options.answer_budgets)
    if is_found and not path.is_file():
        return None
    try:
        if is_found and (own := _set_by_itself(options, gates)) is not None:
            raise ConfigurationError(f"{own} is set")
        budgets = _read(path, Path(model), engine, options.recompute_policy, log)
    except ConfigurationError as error:
        if not is_found:
            raise
        log.warning("SemBlend does not use %s: %s", path, error)
        return None
    log.info("SemBlend recomputes by the answer budgets in %s", path)
    return budgets


def with_budgets(gates: Gates, budgets: AnswerBudgets | None, max_loss: float) -> Gates:
    """Moved passages that are as long as those that kept their answers reach the gate, which decides by class and
    length."""
    if budgets is None or gates.min_moved_tokens:
        return gates
    return replace(gates, min_moved_tokens=budgets.min_moved_tokens(max_loss))


def _set_by_itself(options: FidelityOptions, gates: Gates) -> str | None:
    """The first option, set by the deployment, that the budgets would overrule."""
    usual = type(options)()
    for name in OWN_OPTIONS:
        if getattr(options, name) != getattr(usual, name):
            return name
    for name in OWN_GATES:
        if getattr(gates, name) != getattr(ADAPTER_GATES, name):
            return name
    return None


def _read(path: Path, model: Path, engine: str, policy: str, log: logging.Logger) -> AnswerBudgets:
    try:
        budgets = decode_budgets(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"answer budgets {path}: {getattr(error, 'strerror', None) or error}") from None
    if budgets.engine != engine:
        raise ConfigurationError(f"it was measured with {budgets.engine}, and this server is {engine}: measure again")
    if budgets.policy not in (None, policy):
        raise ConfigurationError(
            f"it was measured with recompute_policy {budgets.policy}, and this server has {policy}: set that policy, "
            "or measure again"
        )
    mark = weights_mark(model) if model.exists() else None
    if budgets.weights is None or mark is None:
        log.warning("Whether the answer budgets %s are those of %s is not known", path, model)
    elif budgets.weights != mark:
        raise ConfigurationError(
            f"it was measured with other weights than those of {model} (measured: {budgets.model})"
        )
    return budgets
