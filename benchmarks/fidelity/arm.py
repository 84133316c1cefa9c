"""One arm: a policy at a budget, written ``policy@fraction[+bridge][!variant]``; or ``default[@fraction]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import benchmarks.fidelity.trial_policies  # noqa: F401 - registers the policies on trial
from sembase.errors import ConfigurationError
from semblend.contract import ReusePlan
from semblend.integration.vllm.options import ConnectorOptions
from semblend.plan.selection import POLICIES, Selection

_FORM = re.compile(r"(?P<policy>\w+)@(?P<fraction>[0-9.]+)(?:\+(?P<bridge>\d+))?(?:!(?P<variant>\w+))?")


DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Arm:
    """``variant`` names an experiment of this benchmark that no deployment can use; empty for the worker half's own
    code.

    ``gated``: planned with the default gates, which may decline; the gates of other arms are open. An arm without a
    selection uses the default one.
    """

    name: str
    selection: Selection | None
    variant: str = ""
    gated: bool = False

    def selection_for(self, plan: ReusePlan) -> Selection:
        if self.selection is not None:
            return self.selection
        options = ConnectorOptions()
        return options.selection(options.fraction_of(plan)) or Selection("first", 0.0)


def parse_arm(text: str) -> Arm:
    if text == DEFAULT:
        return Arm(DEFAULT, None, gated=True)
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"invalid arm '{text}' (expected default or policy@fraction, such as question@0.2 or question@0.2+2)"
        )
    if found["policy"] == DEFAULT:
        return Arm(text, Selection(ConnectorOptions().recompute_policy, float(found["fraction"])), gated=True)
    POLICIES.get(found["policy"])
    selection = Selection(found["policy"], float(found["fraction"]), int(found["bridge"] or 0))
    return Arm(text, selection, found["variant"] or "")
