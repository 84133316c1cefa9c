"""One thing to try: a policy at a budget, written ``policy@share[+bridge][!variant]``; or ``default[@share]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import benchmarks.fidelity.trial_policies  # noqa: F401 - registers the policies on trial
from sembase.errors import ConfigurationError
from semblend.contract import ReusePlan
from semblend.integration.vllm.options import ConnectorOptions
from semblend.plan.selection import POLICIES, Selection

_FORM = re.compile(r"(?P<policy>\w+)@(?P<share>[0-9.]+)(?:\+(?P<bridge>\d+))?(?:!(?P<variant>\w+))?")


DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Arm:
    """``variant`` names an experiment of the bench that no deployment has; empty for what the worker half does.

    ``gated``: planned with the gates of a deployment that set none, which may decline; other arms have them open.
    Without a selection it has that deployment's as well.
    """

    name: str
    selection: Selection | None
    variant: str = ""
    gated: bool = False

    def selection_for(self, plan: ReusePlan) -> Selection:
        if self.selection is not None:
            return self.selection
        options = ConnectorOptions()
        return options.selection(options.share_of(plan)) or Selection("first", 0.0)


def parse_arm(text: str) -> Arm:
    if text == DEFAULT:
        return Arm(DEFAULT, None, gated=True)
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"'{text}' is no arm; write default or policy@share, such as question@0.2 or question@0.2+2"
        )
    if found["policy"] == DEFAULT:
        return Arm(text, Selection(ConnectorOptions().recompute_policy, float(found["share"])), gated=True)
    POLICIES.get(found["policy"])
    selection = Selection(found["policy"], float(found["share"]), int(found["bridge"] or 0))
    return Arm(text, selection, found["variant"] or "")
