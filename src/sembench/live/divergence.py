"""How far two greedy answers diverge, by the log-probabilities of the server. Pure functions of replies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sembench.http.reply import TokenLogprobs

_TINY: Final = 1e-12
_END: Final = "\0end of the answer"


@dataclass(frozen=True, slots=True)
class Divergence:
    """``kl`` has one value per compared position, in nats; ``agreed_tokens`` precede the first difference."""

    kl: tuple[float, ...]
    agreed_tokens: int


def diverge(cold: Sequence[TokenLogprobs], warm: Sequence[TokenLogprobs]) -> Divergence | None:
    """KL of the server's top-k at each position of two greedy answers whose history is equal.

    Positions after the first differing token have different histories, so they are not compared. An answer that ends
    while the other continues differs at the position where it ends. None if a reply has no log-probabilities.
    """
    if not cold or not warm:
        return None
    agreed = 0
    for ours, theirs in zip(cold, warm, strict=False):
        if ours.token != theirs.token:
            break
        agreed += 1
    compared = zip(cold[: agreed + 1], warm[: agreed + 1], strict=False)
    kl = [kl_over_union(a.top, b.top) for a, b in compared if a.top and b.top]
    if agreed == len(warm) < len(cold) and (top := cold[agreed].top):
        kl.append(kl_over_union(top, _ended_instead(cold[agreed])))
    elif agreed == len(cold) < len(warm) and (top := warm[agreed].top):
        kl.append(kl_over_union(_ended_instead(warm[agreed]), top))
    return Divergence(tuple(kl), agreed)


def _ended_instead(continued: TokenLogprobs) -> dict[str, float]:
    """The distribution assumed at the end of the answer that ended; servers do not send one.

    The end of the answer gets the probability that the other answer gave its next token.
    """
    others = {token: value for token, value in continued.top.items() if token != continued.token}
    return {**others, _END: continued.top.get(continued.token, continued.logprob)}


def kl_over_union(cold: Mapping[str, float], warm: Mapping[str, float]) -> float:
    """KL(cold || warm) over every token in either top-k, all others in one bucket.

    A token missing from one side gets the highest probability it can have there: at most that of the side's least
    likely named token, and at most its part of the mass that side left unnamed. So the KL is underestimated rather
    than overestimated, and equal distributions give 0.
    """
    union = cold.keys() | warm.keys()
    ours, theirs = _complete(cold, union), _complete(warm, union)
    return max(0.0, sum(p * math.log(p / q) for p, q in zip(ours, theirs, strict=True)))


def _complete(top: Mapping[str, float], union: set[str]) -> list[float]:
    """Probabilities of the union's tokens in a fixed order, then of all other tokens together; they sum to 1."""
    named = {token: max(_TINY, math.exp(min(0.0, value))) for token, value in top.items()}
    missing = len(union) - len(named)
    rest = max(_TINY, 1.0 - sum(named.values()))
    each = max(_TINY, min(*named.values(), rest / (missing + 1)))
    values = [named.get(token, each) for token in sorted(union)]
    values.append(max(_TINY, rest - each * missing))
    total = sum(values)
    return [value / total for value in values]
