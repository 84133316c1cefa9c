"""Texts in, requests out that a latency model can be fitted to: varied lengths, shared prefixes, concurrent requests.

A fit needs all three: lengths for the price per token, shared prefixes for the price of a hit, concurrency for the
queue. Every twenty requests contain the whole mixture, so any stretch of time does.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sembase.errors import ConfigurationError, ContractError
from sembase.segment import Message

Pace = Literal["alone", "paced", "burst"]
MAX_REQUESTS: Final = 10_000
_ROUND: Final = 20
_SHARES: Final = (0.0,) * 8 + (0.25,) * 4 + (0.5,) * 3 + (0.75,) * 3 + (0.95,) * 2
_PACES: Final[tuple[Pace, ...]] = ("alone",) * 8 + ("paced",) * 8 + ("burst",) * 4
_TOKENS_PER_WORD: Final = 1.35
_REMEMBERED: Final = 32
_MIN_WORDS: Final = 50
_PARAGRAPH_WORDS: Final = 60
_WORD: Final = re.compile(r"\S+\s*")
_SYSTEM: Final = "You answer questions about the document you are given."
_QUESTION: Final = "\n\nUSER: Continue the document in the same style."


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Prompt tokens are estimated from words. ``utilisation``: fraction of time the server is busy while requests are
    paced."""

    requests: int = 120
    min_prompt_tokens: int = 150
    max_prompt_tokens: int = 3_000
    output_tokens: int = 16
    utilisation: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.requests <= MAX_REQUESTS:
            raise ConfigurationError(f"requests must be between 1 and {MAX_REQUESTS:,}")


@dataclass(frozen=True, slots=True)
class Step:
    """``alone``: when the server is idle; ``paced``: after ``gap`` times a typical service time; ``burst``: at once.

    ``kind`` is the role of the request in the plan: fresh, or the fraction it shares with an earlier one.
    """

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int
    kind: str
    pace: Pace
    gap: float = 0.0


def plan_requests(texts: Sequence[str], options: PlanOptions) -> list[Step]:
    draws = np.random.default_rng(options.seed)
    steps = []
    for number, (messages, max_tokens, kind) in enumerate(_composed(texts, options, draws)):
        pace = _PACES[number % _ROUND]
        gap = float(draws.exponential(1.0 / options.utilisation)) if pace == "paced" else 0.0
        steps.append(Step(f"request-{number:05d}", messages, max_tokens, kind, pace, gap))
    return steps


def _composed(
    texts: Sequence[str], options: PlanOptions, draws: np.random.Generator
) -> Iterator[tuple[tuple[Message, ...], int, str]]:
    """Messages, tokens to generate and kind of each request."""
    pool = _words(texts)
    earlier: deque[list[str]] = deque(maxlen=_REMEMBERED)
    for number in range(options.requests):
        if number % _ROUND == 0:
            lengths, shares = _spread_lengths(options, draws), draws.permutation(_SHARES)
        words = max(_MIN_WORDS, int(lengths[number % _ROUND] / _TOKENS_PER_WORD))
        share = float(shares[number % _ROUND]) if earlier else 0.0
        begun = _beginning(earlier, int(share * words), draws)
        if not begun:  # a unique number first, so that nothing is shared by accident
            begun = [f"CONTEXT: Document {draws.integers(10**9, 10**10)} of the archive.\n"]
        context = _in_paragraphs([*begun, *_stretch(pool, words - len(begun), draws)])
        earlier.append(context)
        output = int(draws.integers(max(1, options.output_tokens // 2), 3 * options.output_tokens // 2 + 1))
        messages = (Message("system", _SYSTEM), Message("user", "".join(context).rstrip() + _QUESTION))
        yield messages, output, f"shares {share:.0%}" if share else "fresh"


def _spread_lengths(options: PlanOptions, draws: np.random.Generator) -> list[float]:
    """One length from each twentieth of the logarithmic range, in random order."""
    low, high = np.log(options.min_prompt_tokens), np.log(options.max_prompt_tokens)
    places = (draws.permutation(_ROUND) + draws.uniform(size=_ROUND)) / _ROUND
    return [float(length) for length in np.exp(low + places * (high - low))]


def _beginning(earlier: Sequence[list[str]], words: int, draws: np.random.Generator) -> list[str]:
    """The first ``words`` words of an earlier document, if possible of one that is long enough."""
    if words < 1 or not earlier:
        return []
    enough = [document for document in earlier if len(document) >= words]
    chosen = enough[int(draws.integers(len(enough)))] if enough else max(earlier, key=len)
    return chosen[:words]


def _stretch(pool: Sequence[str], count: int, draws: np.random.Generator) -> list[str]:
    start = int(draws.integers(len(pool)))
    return [pool[(start + offset) % len(pool)] for offset in range(max(count, 0))]


def _in_paragraphs(words: list[str]) -> list[str]:
    """Breaks at fixed positions, so that a shared prefix consists of shared blocks in the trace too."""
    ends = range(_PARAGRAPH_WORDS - 1, len(words), _PARAGRAPH_WORDS)
    return [word.rstrip() + "\n\n" if place in ends else word for place, word in enumerate(words)]


def _words(texts: Sequence[str]) -> list[str]:
    words = [word for text in texts for word in _WORD.findall(text + "\n\n")]
    if len(words) < _MIN_WORDS:
        raise ContractError(f"the texts contain {len(words)} words; at least {_MIN_WORDS} are needed")
    return words
