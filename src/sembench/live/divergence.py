"""How far two greedy answers lie apart: KL of the server's top-k at each position whose history is equal.

Pure arithmetic on what two replies carry. Positions behind the first differing token have another history and say
nothing about the cache, so they are not compared. An answer that ends while the other goes on differs where it ends.
"""

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
    """``kl`` has one value per compared position, in nats; ``agreed_tokens`` is where the answers part."""

    kl: tuple[float, ...]
    agreed_tokens: int


def diverge(cold: Sequence[TokenLogprobs], warm: Sequence[TokenLogprobs]) -> Divergence | None:
    """None if one of the replies carries no log-probabilities: then nothing was compared."""
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


def _ended_instead(went_on: TokenLogprobs) -> dict[str, float]:
    """What a side that ended had in mind: nobody sends it, so the end is as likely there as the token was here."""
    others = {token: value for token, value in went_on.top.items() if token != went_on.token}
    return {**others, _END: went_on.top.get(went_on.token, went_on.logprob)}


def kl_over_union(cold: Mapping[str, float], warm: Mapping[str, float]) -> float:
    """KL(cold || warm) over every token either side names, all others in one bucket.

    What a side does not name gets the most it can have there: no more than its least named token, nor than its share
    of the mass that side left unnamed. So the figure errs to the small side, and equal distributions give 0.
    """
    union = cold.keys() | warm.keys()
    ours, theirs = _complete(cold, union), _complete(warm, union)
    return max(0.0, sum(p * math.log(p / q) for p, q in zip(ours, theirs, strict=True)))


def _complete(top: Mapping[str, float], union: set[str]) -> list[float]:
    """Probabilities of the union's tokens in one fixed order, and of all other tokens together; they sum to 1."""
    named = {token: max(_TINY, math.exp(min(0.0, value))) for token, value in top.items()}
    missing = len(union) - len(named)
    rest = max(_TINY, 1.0 - sum(named.values()))
    each = max(_TINY, min(*named.values(), rest / (missing + 1)))
    values = [named.get(token, each) for token in sorted(union)]
    values.append(max(_TINY, rest - each * missing))
    total = sum(values)
    return [value / total for value in values]
