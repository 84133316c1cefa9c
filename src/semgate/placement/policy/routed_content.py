"""The hooks of a policy that remembers which content was routed to which replica."""

from __future__ import annotations

from semgate.placement.case import Case
from semgate.placement.overlap import ContentHistory
from semgate.placement.policy.interface import PolicyOptions


class RoutedContent:
    def __init__(self, options: PolicyOptions) -> None:
        self._history = ContentHistory(options.max_contents)

    def placed(self, case: Case, chosen: int) -> None:
        slot = case.candidates[chosen].slot
        for each in case.request.content:
            self._history.note(each.key, slot)

    def forget(self, slot: int) -> None:
        self._history.forget(slot)
