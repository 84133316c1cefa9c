"""One item through all arms in a row: cold, exact radix hit, ours; with what the backend confirms, and fidelity."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any

from scripts.engines.generate import Reply, flush, generate

from benchmarks.sglang.workload import Item

ALONE = {"reuse": False, "capture": False}
TOP = 20
ANSWER_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds to the first token per arm. ``reused_tokens`` as the backend confirmed it; 0 means it declined."""

    size: str
    number: int
    prompt_tokens: int
    cold_s: float
    exact_s: float
    ours_s: float
    exact_cached_tokens: int
    reused_tokens: int
    computed_tokens: int
    ppl_ratio: float | None
    first_kl: float
    agreed_tokens: int
    load_average: float

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def measure(item: Item, base_url: str) -> Row:
    flush(base_url)
    cold = _ask(base_url, item.recipient, ALONE)
    exact = _ask(base_url, item.recipient, ALONE)
    cold_score = _score(base_url, item, ALONE)
    flush(base_url)
    generate(base_url, item.donor, max_new_tokens=1)
    ours = _ask(base_url, item.recipient, None)
    ours_score = _score(base_url, item, None)
    provenance = ours.semblend or {}
    return Row(
        item.size,
        item.number,
        len(item.recipient),
        cold.first_token_s,
        exact.first_token_s,
        ours.first_token_s,
        exact.cached_tokens,
        ours.reused_tokens,
        int(provenance.get("computed_tokens", 0)),
        ppl_ratio(cold_score, ours_score) if ours_score.reused_tokens else None,
        kl({token: value for value, token in cold.first_top}, {token: value for value, token in ours.first_top}),
        _agreed(cold.tokens, ours.tokens),
        os.getloadavg()[0],
    )


def _ask(base_url: str, prompt: tuple[int, ...], hints: dict[str, bool] | None) -> Reply:
    return generate(base_url, prompt, max_new_tokens=ANSWER_TOKENS, top_logprobs=TOP, semblend=hints)


def _score(base_url: str, item: Item, hints: dict[str, bool] | None) -> Reply:
    """The document's own next tokens, read after the recipient's context."""
    prompt = (*item.recipient_open, *item.forced)
    return generate(base_url, prompt, max_new_tokens=1, score_from=len(item.recipient_open), semblend=hints)


def ppl_ratio(cold: Reply, ours: Reply) -> float:
    """Perplexity of the same text after blended context over that after cold context; 1 means no difference."""
    pairs = list(zip(cold.forced, ours.forced, strict=True))
    return math.exp(sum(a - b for a, b in pairs) / len(pairs))


def kl(cold: dict[int, float], ours: dict[int, float]) -> float:
    """KL(cold || ours) of the first token over what both name, the rest in one bucket; a lower bound."""
    named = cold.keys() & ours.keys()
    total = sum(math.exp(cold[token]) * (cold[token] - ours[token]) for token in named)
    rest = [max(1e-9, 1.0 - sum(math.exp(side[token]) for token in named)) for side in (cold, ours)]
    return max(0.0, total + rest[0] * math.log(rest[0] / rest[1]))


def _agreed(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return min(len(first), len(second))
