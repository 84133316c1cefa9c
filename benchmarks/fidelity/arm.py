"""One arm: a policy at a budget, ``[GATES:]policy@fraction[+bridge]``; ``default``; ``GATES@fraction``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sembase.errors import ConfigurationError
from semblend.contract import ReusePlan
from semblend.integration.vllm.options import ConnectorOptions
from semblend.plan.gates import ADAPTER_GATES, Gates
from semblend.plan.selection import POLICIES, Selection

_FORM = re.compile(r"(?:(?P<gates>default|wide):)?(?P<policy>\w+)@(?P<fraction>[0-9.]+)(?:\+(?P<bridge>\d+))?")


DEFAULT = "default"
WIDE = "wide"
OPEN_GATES = Gates(boundary_recompute_tokens=0, max_context_share=1.0)
GATES = {DEFAULT: ADAPTER_GATES, WIDE: replace(ADAPTER_GATES, max_context_share=1.0)}


@dataclass(frozen=True, slots=True)
class Arm:
    """Planned with ``gates``, which may decline: the default ones; those without the limit of differing context
    (``wide``), so that reordered and composed passages are served as deployed otherwise; or open ones. An arm without
    a selection uses the default one.
    """

    name: str
    selection: Selection | None
    gates: Gates = OPEN_GATES

    def selection_for(self, plan: ReusePlan) -> Selection:
        if self.selection is not None:
            return self.selection
        options = ConnectorOptions()
        return options.selection(options.fraction_of(plan)) or Selection("first", 0.0)


def parse_arm(text: str) -> Arm:
    if text == DEFAULT:
        return Arm(DEFAULT, None, gates=ADAPTER_GATES)
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"invalid arm '{text}' (expected default, GATES@fraction or [GATES:]policy@fraction, such as "
            f"wide:question@0.2+2; gates: {', '.join(GATES)})"
        )
    if (gates := GATES.get(found["policy"])) is not None:
        return Arm(text, Selection(ConnectorOptions().recompute_policy, float(found["fraction"])), gates=gates)
    POLICIES.get(found["policy"])
    selection = Selection(found["policy"], float(found["fraction"]), int(found["bridge"] or 0))
    return Arm(text, selection, GATES.get(found["gates"], OPEN_GATES))
