"""Rendezvous on the leading blocks, with no word from the engines: the home of a prefix is worth what it should save.

A prefix seen before is believed to be at its home to the depth seen; a new one is sent home for its future alone,
worth as much as new prefixes have lately turned out to come back. On a load that repeats nothing that is 0, and this
is least loaded. State: the history of prefixes (most_prefixes, 130 bytes each), hot ones included.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from semgate.placement.case import Case, Choice, best_in_turn
from semgate.placement.decision import RoutePath
from semgate.placement.evidence import SESSION_HOME, add_session_home
from semgate.placement.policy.interface import PolicyOptions, Stateless
from semgate.placement.rendezvous import homes, name_keys
from semgate.placement.replication import HotPrefixes
from semgate.placement.view import PlacementRequest

_FADE: Final = 1.0 / 256.0


class PrefixHash(Stateless):
    name = "prefix_hash"

    def __init__(self, options: PolicyOptions) -> None:
        self._leading_blocks = options.leading_blocks
        self._history = HotPrefixes(options.most_prefixes, options.most_copies)
        self._return_chance = 0.0

    def choose(self, case: Case) -> Choice:
        depths = self._depths(case.request)
        scores = -case.wait_ms
        if not depths:
            return Choice(best_in_turn(scores, case.turn), "cold_route", scores, "no full leading block to hash")
        seen_tokens = max((tokens for key, tokens in depths if self._history.share(key) > 0.0), default=0)
        expected = float(seen_tokens) if seen_tokens else self._return_chance * case.request.prompt_tokens
        key, copies = self._spread(depths, len(case.candidates))
        cached = np.zeros(len(case.candidates))
        at_home = homes(key, name_keys(tuple([each.name for each in case.candidates])), copies)
        cached[at_home] = expected
        add_session_home(case, cached)
        scores = scores + case.price.saved_ms(case.request.prompt_tokens, cached)
        place = best_in_turn(scores, case.turn)
        if place in at_home and seen_tokens:
            reason = f"home of its first {seen_tokens} tokens, routed there before"
            path: RoutePath = "exact_route" if case.request.keys.size else "semantic_placement"
            return Choice(place, path, scores, reason, cached[place])
        if place == case.home:
            return Choice(place, "cold_route", scores, SESSION_HOME, cached[place])
        reason = "home of a new prefix" if place in at_home else "least queueing"
        return Choice(place, "cold_route", scores, reason)

    def placed(self, case: Case, place: int) -> None:
        depths = self._depths(case.request)
        if not depths:
            return
        returned = self._history.share(depths[0][0]) > 0.0
        self._return_chance += _FADE * (returned - self._return_chance)
        self._history.advance()
        for key, _ in depths:
            self._history.note(key)

    def _depths(self, request: PlacementRequest) -> list[tuple[int, int]]:
        """(key, tokens) of the prefix at ``leading_blocks``, twice that, and so on: to find how much it shares."""
        if not request.keys.size:
            return _text_depths(request, self._leading_blocks * request.block_tokens)
        depth = min(self._leading_blocks, request.keys.size)
        found = []
        while depth <= request.keys.size:
            found.append((int(request.keys[depth - 1]), depth * request.block_tokens))
            depth *= 2
        return found

    def _spread(self, depths: list[tuple[int, int]], replicas: int) -> tuple[int, int]:
        """The shortest prefix that fits on one replica; if even the longest is hot, that one on several."""
        for key, _ in depths:
            if self._history.copies(key, replicas) == 1:
                return key, 1
        key = depths[-1][0]
        return key, self._history.copies(key, replicas)


def _text_depths(request: PlacementRequest, leading_tokens: int) -> list[tuple[int, int]]:
    """Without token ids the leading texts are the prefix: as many as make up ``leading_tokens``, or all."""
    key, tokens = 0, 0
    for each in request.content:
        key = (key * 0x9E3779B97F4A7C15 + each.key) & 0xFFFFFFFFFFFFFFFF
        tokens += each.tokens
        if tokens >= leading_tokens:
            break
    return [(key, tokens)] if tokens else []
