"""A lower bound of the KL between two distributions of a token of which only the most likely tokens are known.

Each token in both lists is a cell. The tokens only in the cold list are one cell, whose blended mass is unknown up to a
limit and is set to the value that minimises KL. Everything else is the last cell. Merging outcomes never raises KL, so
the bound holds for the whole distributions: the true KL is at least what is returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

_MIN_MASS: Final = 1e-12  # engines round; a mass of exactly 0 would be an infinite KL


def kl_lower_bound(cold: Mapping[str, float], blended: Mapping[str, float]) -> float:
    """A lower bound of KL(cold || blended) in nats. Both map tokens to log-probabilities."""
    if not cold or not blended:
        raise ValueError("a distribution needs at least one token")
    p = {token: math.exp(min(0.0, logprob)) for token, logprob in cold.items()}
    q = {token: math.exp(min(0.0, logprob)) for token, logprob in blended.items()}
    common = p.keys() & q.keys()
    found = sum(_term(p[token], q[token]) for token in common)
    p_only = sum(mass for token, mass in p.items() if token not in q)
    p_rest = max(0.0, 1.0 - sum(p.values()))
    q_left = max(0.0, 1.0 - sum(q[token] for token in common))
    q_unseen = max(0.0, 1.0 - sum(q.values()))
    alone = p_only + p_rest
    # Without constraints, KL is lowest where the two cells divide q in the same ratio as p.
    q_only = min(q_left * p_only / alone if alone else 0.0, q_unseen, (len(p) - len(common)) * min(q.values()))
    return max(0.0, found + _term(p_only, q_only) + _term(p_rest, q_left - q_only))


def _term(p: float, q: float) -> float:
    return p * math.log(p / max(q, _MIN_MASS)) if p > 0.0 else 0.0
