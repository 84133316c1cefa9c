"""Selection rules on trial: signals of an item in, a score per position out. Published rules are among them.

A rule is written ``rule@fraction``, with ``+heads`` if so many tokens at the head of every run are recomputed
anyway, as a deployment does, and the fraction is of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.fidelity.signals import Signals
from sembase.errors import ConfigurationError
from semblend.plan.selection_policies import first, question

Scores = NDArray[np.float64]
Rule = Callable[[Signals], Scores]
DIGEST_LAYERS = 3  # as published with the digest


def signal(name: str) -> Rule:
    return lambda signals: signals.of(name)


def product(*rules: Rule) -> Rule:
    def score(signals: Signals) -> Scores:
        whole: Scores = np.prod([rule(signals) for rule in rules], axis=0)
        return whole

    return score


def at_random(signals: Signals) -> Scores:
    return np.random.default_rng([2026, len(signals.positions)]).random(len(signals.positions))


def deviation(signals: Signals) -> Scores:
    return signals.deviation.astype(np.float64)


def digest(signals: Signals) -> Scores:
    return signals.of("digest", signals.middle[:DIGEST_LAYERS])


RULES: dict[str, Rule] = {
    "random": at_random,
    "first": first,  # EPIC
    "deviation": deviation,  # CacheBlend, at layer 1
    "question": question,  # ProphetKV
    "digest": digest,  # QCFuse
    "norm": signal("norm"),  # InfoFlow
    "oracle_read": signal("read"),
    "oracle_drift": signal("drift"),
    "oracle_both": product(signal("read"), signal("drift")),
}


@dataclass(frozen=True, slots=True)
class RuleArm:
    name: str
    rule: Rule
    fraction: float
    head_tokens: int = 0

    def choose(self, signals: Signals) -> NDArray[np.int64]:
        """The positions to recompute, ascending."""
        rest = signals.distance >= self.head_tokens
        if not rest.any():
            return signals.positions
        seen = only(signals, rest) if self.head_tokens else signals
        order = np.argsort(-self.rule(seen), kind="stable")
        chosen = seen.positions[order[: int(self.fraction * len(order))]]
        both: NDArray[np.int64] = np.sort(np.concatenate([signals.positions[~rest], chosen]))
        return both


def only(signals: Signals, rest: NDArray[np.bool_]) -> Signals:
    """What is known of these positions alone."""
    return replace(
        signals,
        positions=signals.positions[rest],
        distance=signals.distance[rest],
        context_share=signals.context_share[rest],
        attention=None if signals.attention is None else signals.attention[..., rest],
        deviation=signals.deviation[rest],
        layered={name: rows[..., rest] for name, rows in signals.layered.items()},
    )


def overlap(scores: Scores, wanted: Scores, fraction: float) -> float:
    """The part of the positions that ``wanted`` would choose which ``scores`` chooses as well."""
    budget = max(1, int(fraction * len(scores)))
    ours, theirs = (set(np.argsort(-each, kind="stable")[:budget].tolist()) for each in (scores, wanted))
    return len(ours & theirs) / budget


def ranked_layers(
    items: Sequence[Signals], name: str = "question", oracle: str = "oracle_both", fraction: float = 0.15
) -> tuple[int, ...]:
    """Layers by how much of the oracle's choice their signal finds, best first, mean over items."""
    oracles = [RULES[oracle](signals) for signals in items]
    found = [
        np.mean([overlap(s.of(name, (layer,)), o, fraction) for s, o in zip(items, oracles, strict=True)])
        for layer in range(len(items[0].layered[name]))
    ]
    return tuple(np.argsort(-np.asarray(found), kind="stable").tolist())


_FORM = re.compile(r"(?P<rule>\w+)@(?P<fraction>[0-9.]+)(?:\+(?P<heads>\d+))?")


def parse_rule(text: str) -> RuleArm:
    found = _FORM.fullmatch(text)
    if found is None or found["rule"] not in RULES or float(found["fraction"]) > 1:
        raise ConfigurationError(f"invalid rule '{text}' (expected rule@fraction[+heads]; rules: {', '.join(RULES)})")
    return RuleArm(text, RULES[found["rule"]], float(found["fraction"]), int(found["heads"] or 0))
