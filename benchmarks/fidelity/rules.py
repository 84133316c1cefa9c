"""Selection rules on trial: signals of an item in, a score per position out. Published rules are among them.

A rule is written ``rule@fraction``, with ``/block`` if positions are chosen in whole blocks and with ``+heads`` if so
many tokens at the head of every run are recomputed anyway, as a deployment does, and the fraction is of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.fidelity.signals import Signals
from sembase.errors import ConfigurationError
from semblend.plan.selection_policies import (
    at_random,
    deviation,
    either,
    first,
    product,
    question,
    question_by_deviation,
    question_or_deviation,
)

Scores = NDArray[np.float64]
Rule = Callable[[Signals], Scores]
MIDDLE_LAYERS = 5
DIGEST_LAYERS = 3  # as published with the digest


def signal(name: str) -> Rule:
    return lambda signals: signals.of(name)


def middle(signals: Signals) -> Scores:
    return signals.of("question", signals.middle[:MIDDLE_LAYERS])


def digest(signals: Signals) -> Scores:
    return signals.of("digest", signals.middle[:DIGEST_LAYERS])


RULES: dict[str, Rule] = {
    "random": at_random,
    "first": first,  # EPIC
    "deviation": deviation,  # CacheBlend, at layer 1
    "question": question,  # ProphetKV
    "digest": digest,  # QCFuse
    "norm": signal("norm"),  # InfoFlow
    "question_by_deviation": question_by_deviation,
    "question_or_deviation": question_or_deviation,
    "middle": middle,
    "middle_or_deviation": either(middle, deviation),
    "middle_by_deviation": product(middle, deviation),
    "repeat": signal("repeat"),
    "question_or_repeat": either(question, signal("repeat")),
    "question_or_repeat_by_deviation": either(question, product(signal("repeat"), deviation)),
    "question_or_first": either(question, first),
    "question_or_deviation_or_first": either(question, deviation, first),
    "oracle_read": signal("read"),
    "oracle_drift": signal("drift"),
    "oracle_both": product(signal("read"), signal("drift")),
}


@dataclass(frozen=True, slots=True)
class RuleArm:
    name: str
    rule: Rule
    fraction: float
    block_tokens: int = 0
    head_tokens: int = 0

    def choose(self, signals: Signals) -> NDArray[np.int64]:
        """The positions to recompute, ascending."""
        rest = signals.distance >= self.head_tokens
        if not rest.any():
            return signals.positions
        seen = only(signals, rest) if self.head_tokens else signals
        positions = seen.positions
        if self.block_tokens:
            seen = in_blocks(seen, self.block_tokens)
        order = np.argsort(-self.rule(seen), kind="stable")
        chosen = positions[order[: int(self.fraction * len(positions))]]
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
        deviation=None if signals.deviation is None else signals.deviation[..., rest],
        layered={name: rows[..., rest] for name, rows in signals.layered.items()},
    )


def in_blocks(signals: Signals, tokens: int) -> Signals:
    """Every position sees the mean of its block: a rule then takes whole blocks. Blocks do not cross runs."""
    starts = (np.diff(signals.distance, prepend=signals.distance[:1]) <= 0) | (signals.positions % tokens == 0)
    block = np.cumsum(starts) - 1
    sizes = np.bincount(block)

    def mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        flat = rows.reshape(-1, rows.shape[-1])
        means = np.stack([np.bincount(block, row) / sizes for row in flat])
        spread: NDArray[np.float32] = means[:, block].reshape(rows.shape).astype(np.float32)
        return spread

    return replace(
        signals,
        distance=np.repeat(signals.distance[starts], sizes),
        attention=None if signals.attention is None else mean(signals.attention),
        deviation=None if signals.deviation is None else mean(signals.deviation),
        layered={name: mean(rows) for name, rows in signals.layered.items()},
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


_FORM = re.compile(r"(?P<rule>\w+)@(?P<fraction>[0-9.]+)(?:/(?P<block>\d+))?(?:\+(?P<heads>\d+))?")


def parse_rule(text: str) -> RuleArm:
    found = _FORM.fullmatch(text)
    if found is None or found["rule"] not in RULES or float(found["fraction"]) > 1:
        raise ConfigurationError(
            f"invalid rule '{text}' (expected rule@fraction[/block][+heads]; rules: {', '.join(RULES)})"
        )
    return RuleArm(
        text, RULES[found["rule"]], float(found["fraction"]), int(found["block"] or 0), int(found["heads"] or 0)
    )
