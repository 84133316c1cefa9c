"""A routing policy of your own: a session stays on its replica unless the queue there is long. Needs the extra gateway.

``kvmend route --routing-policy patient`` finds it by the entry point ``patient = "my_package:Patient"`` in the group
``semgate.placement``; its constructor gets the ``PolicyOptions``.
"""

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.placer import Placer
from semgate.placement.policy.interface import Needs, PolicyOptions, Stateless
from semgate.placement.view import PlacementRequest, ReplicaView

LONG_QUEUE_MS = 2_000.0


class Patient(Stateless):
    name = "patient"
    needs = Needs(tokens="ignored", text="ignored")

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options

    def choose(self, case: Case) -> Choice:
        scores = -case.wait_ms
        if case.home is not None and case.wait_ms[case.home] < LONG_QUEUE_MS:
            return Choice(case.home, "cold_route", scores, "its session was here")
        return Choice(best_in_turn(scores, case.turn), "cold_route", scores, "shortest queue")


placer = Placer(Patient(PolicyOptions()))
request = PlacementRequest(prompt_tokens=1_000, session="chat-1")
for queued in (0, 2_000, 200_000):
    fleet = [ReplicaView("a", 0, queued_prefill_tokens=queued), ReplicaView("b", 1, queued_prefill_tokens=500)]
    decision = placer.decide(request, fleet)
    print(f"{queued} tokens wait at a: {decision.replica}, {decision.reason}")
