"""Label-weighted overlap with content routed to each replica before: system and template text weighs more.

A weight is the chance that the content is still cached and will be used again: 1 for system text, less for one-off
user text. Leading content counts in full, the same content further inside the prompt by ``scattered_worth``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sembase.labels import LABELS
from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.evidence import SESSION_HOME, add_session_home
from semgate.placement.policy.interface import Needs, PolicyOptions
from semgate.placement.policy.routed_content import RoutedContent
from semgate.placement.view import Content, Floats

# The published weights of the simulator's semantic policies, as fractions of the largest.
_WEIGHT: Final = {
    "system": 1.0,
    "template": 2.0 / 2.4,
    "code": 1.6 / 2.4,
    "retrieved_context": 1.4 / 2.4,
    "tool_output": 1.1 / 2.4,
    "assistant": 1.0 / 2.4,
    "other": 0.8 / 2.4,
    "user": 0.7 / 2.4,
}
WEIGHTS: Final = tuple(_WEIGHT[label] for label in LABELS)


class SemanticLocality(RoutedContent):
    name = "semantic_locality"
    needs = Needs(tokens="ignored")

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._scattered_worth = options.scattered_worth

    def choose(self, case: Case) -> Choice:
        remembered = self._overlap_tokens(case.request.content, case.slots.tolist())
        overlap = remembered.copy()
        add_session_home(case, overlap)
        saved = case.price.saved_ms(case.request.prompt_tokens, overlap)
        scores = saved - case.wait_ms
        chosen = best_in_turn(scores, case.turn)
        if remembered[chosen] > 0.0:
            reason = f"similar content was routed there before, worth {saved[chosen]:.0f} ms"
            return Choice(chosen, "semantic_placement", scores, reason, overlap[chosen])
        if overlap[chosen] > 0.0:
            return Choice(chosen, "cold_route", scores, SESSION_HOME, overlap[chosen])
        reason = "queues outweigh every overlap" if overlap.any() else "no replica has seen the content"
        return Choice(chosen, "cold_route", scores, reason)

    def _overlap_tokens(self, content: Sequence[Content], slots: Sequence[int]) -> Floats:
        """Weighted tokens per candidate; content of the unbroken beginning counts in full."""
        overlap = np.zeros(len(slots))
        position_of = {slot: position for position, slot in enumerate(slots)}
        leading = sum(1 << slot for slot in slots)
        for each in content:
            holders = self._history.holders(each.key)
            worth = WEIGHTS[each.label] * each.tokens
            leading &= holders
            for slot in _bits(holders):
                if slot in position_of:
                    overlap[position_of[slot]] += worth if leading >> slot & 1 else worth * self._scattered_worth
        return overlap


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
