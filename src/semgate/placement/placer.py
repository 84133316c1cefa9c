"""A request and the fleet in, a decision out. The router calls ``decide`` for each attempt and ``observe`` for each
first token; nothing here waits, locks or grows without bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sembase.latency import LatencyModel
from semgate.placement.affinity import SessionHomes
from semgate.placement.border import guarded, without_evidence
from semgate.placement.case import Case, Choice, at_slots, build_case
from semgate.placement.cost import Price, price_of
from semgate.placement.decision import Decision
from semgate.placement.eligible import eligible, trial_due
from semgate.placement.learner import PrefillLearner
from semgate.placement.policy.interface import Needs, Policy, PolicyOptions
from semgate.placement.policy.least_loaded import LeastLoaded
from semgate.placement.policy.registry import POLICIES
from semgate.placement.view import Observed, PlacementRequest, ReplicaView


class Placer:
    """``price``: a calibrated price is fixed; any other (None: the default) is the prior of the online learner.

    ``scores_kept`` bounds ``Decision.scores_ms``. One Placer per process, called from one thread.
    """

    def __init__(
        self,
        policy: str | Policy,
        *,
        options: PolicyOptions | None = None,
        price: Price | None = None,
        homes: SessionHomes | None = None,
        scores_kept: int = 8,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options or PolicyOptions()
        self._policy = POLICIES.get(policy)(self._options) if isinstance(policy, str) else policy
        self._fallback = LeastLoaded(self._options)
        self._given = price or price_of(LatencyModel())
        self._learner = None if self._given.source == "calibrated" else PrefillLearner(self._given)
        self.homes = SessionHomes() if homes is None else homes
        self._scores_kept = scores_kept
        self._clock_s = clock_s
        self._turn = 0

    @property
    def policy(self) -> str:
        return self._policy.name

    @property
    def needs(self) -> Needs:
        """All evidence for a third-party policy that does not say what it needs."""
        needs: Needs = getattr(self._policy, "needs", Needs())
        return needs

    @property
    def price(self) -> Price:
        return self._given if self._learner is None else self._learner.price

    @property
    def sessions(self) -> int:
        return len(self.homes)

    def decide(self, request: PlacementRequest, fleet: Sequence[ReplicaView]) -> Decision:
        """Place the request and remember where it went. Raises only ``NoUsableReplicaError``."""
        began_ns, now_s = time.perf_counter_ns(), self._clock_s()
        trial = trial_due(fleet, request.tried)
        candidates, last_resort = ([trial], None) if trial is not None else eligible(fleet, request.tried)
        turn, self._turn = self._turn, self._turn + 1
        fall_back = partial(without_evidence, request, candidates, self.price, turn, now_s, self._fallback)
        case, choice = guarded(partial(self._choose_and_note, request, candidates, turn, now_s), fall_back)
        if trial is not None:
            choice = replace(choice, path="cold_route", reason="trial of a half-open replica")
        elif last_resort is not None:
            choice = replace(choice, path="error_fallback", reason=last_resort)
        elif request.evidence_error is not None:
            choice = replace(choice, path="error_fallback", reason=f"{request.evidence_error}; placed by load")
        return self._decision(request, case, choice, self._scores_kept, began_ns)

    def explain(self, request: PlacementRequest, fleet: Sequence[ReplicaView]) -> Decision:
        """What ``decide`` would return now, with the score of every candidate; changes no state."""
        began_ns, now_s = time.perf_counter_ns(), self._clock_s()
        candidates, last_resort = eligible(fleet, request.tried)
        fall_back = partial(without_evidence, request, candidates, self.price, self._turn, now_s, self._fallback)
        case, choice = guarded(partial(self._choose, request, candidates, self._turn, now_s), fall_back)
        if last_resort is not None:
            choice = replace(choice, path="error_fallback", reason=last_resort)
        return self._decision(request, case, choice, len(candidates), began_ns)

    def observe(self, observed: Observed) -> None:
        if self._learner is not None:
            self._learner.learn(observed)

    def forget(self, slot: int) -> None:
        """The replica of this slot left, or restarted with an empty cache."""
        self._policy.forget(slot)

    def _choose(
        self, request: PlacementRequest, candidates: Sequence[ReplicaView], turn: int, now_s: float
    ) -> tuple[Case, Choice]:
        case = build_case(request, candidates, self.price, turn, now_s)
        home = self.homes.find(request.tenant, request.session, now_s)
        position = None if home is None else _position_of(home.replica, candidates)
        if home is not None and position is not None:
            case = replace(case, home=position, home_tokens=home.prompt_tokens, home_age_s=now_s - home.at_s)
        choice = self._policy.choose(case)
        if not 0 <= choice.chosen < len(candidates):
            raise IndexError("a policy chose a candidate that does not exist")
        return case, choice

    def _choose_and_note(
        self, request: PlacementRequest, candidates: Sequence[ReplicaView], turn: int, now_s: float
    ) -> tuple[Case, Choice]:
        case, choice = self._choose(request, candidates, turn, now_s)
        self._policy.placed(case, choice.chosen)
        replica = candidates[choice.chosen].name
        self.homes.note(request.tenant, request.session, replica, request.prompt_tokens, now_s)
        return case, choice

    def _decision(
        self, request: PlacementRequest, case: Case, choice: Choice, scores_kept: int, began_ns: int
    ) -> Decision:
        exact = 0 if choice.path == "error_fallback" else int(case.cached_blocks[choice.chosen])
        donor, similarity = 0, None
        if case.request.donor_tokens is not None:
            donor = int(at_slots(case.request.donor_tokens, case.slots)[choice.chosen])
            similarity = min(donor / request.prompt_tokens, 1.0) if request.prompt_tokens else 0.0
        return Decision(
            replica=case.candidates[choice.chosen].name,
            path=choice.path,
            policy=self._policy.name,
            exact_blocks=exact,
            donor_tokens=donor,
            similarity=similarity,
            scores_ms=_best_scores(case, choice, scores_kept),
            reason=choice.reason,
            decide_us=(time.perf_counter_ns() - began_ns) / 1e3,
            expected_tokens=min(int(choice.expected_tokens), max(request.prompt_tokens - 1, 0)),
            own_evidence=request.own_evidence,
        )


def _position_of(replica: str, candidates: Sequence[ReplicaView]) -> int | None:
    return next((position for position, each in enumerate(candidates) if each.name == replica), None)


def _best_scores(case: Case, choice: Choice, kept: int) -> tuple[tuple[str, float], ...]:
    """Best first; always includes the chosen one."""
    order = np.argsort(-choice.scores_ms, kind="stable")[:kept].tolist()
    if choice.chosen not in order:
        order = [*order[: max(kept - 1, 0)], choice.chosen]
    return tuple((case.candidates[position].name, float(choice.scores_ms[position])) for position in order)
