"""Rendezvous hashing of the leading blocks, without reports of the engines.

A prefix seen before is assumed to be cached at its home replica to the depth seen. A new prefix is sent to its home
only for future requests, weighted by how often new prefixes have recently come back. Traffic that repeats nothing gives
a weight of 0, and the policy becomes least loaded. State: the history of prefixes (``max_prefixes``, 130 bytes each),
hot ones included.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.decision import RoutePath
from semgate.placement.evidence import SESSION_HOME, add_session_home
from semgate.placement.policy.interface import Needs, PolicyOptions, Stateless
from semgate.placement.rendezvous import homes, name_keys
from semgate.placement.replication import HotPrefixes
from semgate.placement.view import PlacementRequest

_FADE: Final = 1.0 / 256.0


class PrefixHash(Stateless):
    name = "prefix_hash"
    needs = Needs(text="fallback")

    def __init__(self, options: PolicyOptions) -> None:
        self._leading_blocks = options.leading_blocks
        self._history = HotPrefixes(options.max_prefixes, options.max_copies)
        self._return_chance = 0.0

    def choose(self, case: Case) -> Choice:
        depths = self._depths(case.request)
        scores = -case.wait_ms
        if not depths:
            return Choice(best_in_turn(scores, case.turn), "cold_route", scores, "prompt too short to hash")
        seen_tokens = max((tokens for key, tokens in depths if self._history.request_fraction(key) > 0.0), default=0)
        expected = float(seen_tokens) if seen_tokens else self._return_chance * case.request.prompt_tokens
        key, copies = self._spread(depths, len(case.candidates))
        cached = np.zeros(len(case.candidates))
        at_home = homes(key, name_keys(tuple([each.name for each in case.candidates])), copies)
        cached[at_home] = expected
        add_session_home(case, cached)
        scores = scores + case.price.saved_ms(case.request.prompt_tokens, cached)
        chosen = best_in_turn(scores, case.turn)
        if chosen in at_home and seen_tokens:
            reason = f"first {seen_tokens} tokens were routed there before"
            path: RoutePath = "exact_route" if case.request.keys.size else "semantic_placement"
            return Choice(chosen, path, scores, reason, cached[chosen])
        if chosen == case.home:
            return Choice(chosen, "cold_route", scores, SESSION_HOME, cached[chosen])
        reason = "home replica of a new prefix" if chosen in at_home else "shortest predicted queue"
        return Choice(chosen, "cold_route", scores, reason)

    def placed(self, case: Case, chosen: int) -> None:
        depths = self._depths(case.request)
        if not depths:
            return
        returned = self._history.request_fraction(depths[0][0]) > 0.0
        self._return_chance += _FADE * (returned - self._return_chance)
        self._history.advance()
        for key, _ in depths:
            self._history.note(key)

    def _depths(self, request: PlacementRequest) -> list[tuple[int, int]]:
        """(key, tokens) of the prefix at ``leading_blocks``, twice that, and so on, to find how much has been seen."""
        if not request.keys.size:
            return _text_depths(request, self._leading_blocks * request.block_tokens)
        depth = min(self._leading_blocks, request.keys.size)
        found = []
        while depth <= request.keys.size:
            found.append((int(request.keys[depth - 1]), depth * request.block_tokens))
            depth *= 2
        return found

    def _spread(self, depths: list[tuple[int, int]], replicas: int) -> tuple[int, int]:
        """The shortest prefix that one replica can serve; if even the longest is hot, that one on several replicas."""
        for key, _ in depths:
            if self._history.copies(key, replicas) == 1:
                return key, 1
        key = depths[-1][0]
        return key, self._history.copies(key, replicas)


def _text_depths(request: PlacementRequest, leading_tokens: int) -> list[tuple[int, int]]:
    """Without token ids the leading texts are the prefix: enough of them to reach ``leading_tokens``, or all."""
    key, tokens = 0, 0
    for each in request.content:
        key = (key * 0x9E3779B97F4A7C15 + each.key) & 0xFFFFFFFFFFFFFFFF
        tokens += each.tokens
        if tokens >= leading_tokens:
            break
    return [(key, tokens)] if tokens else []
