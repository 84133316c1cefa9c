"""The load every client sends: the same prompts of exact length, so many at a time, each answered in full."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from benchmarks.corpus import TOKENIZER
from sembase.tokenizer import open_tokenizer
from sembench.load.prompts import GeneratedPrompts, GeneratedWords


class PromptLengthError(Exception):
    """An invented prompt has another length than the load says."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running server and the model to ask it for."""

    url: str
    model: str


@dataclass(frozen=True, slots=True)
class Load:
    """Closed loop. ``warm_up`` requests come before and are in no figure of a client."""

    concurrency: int
    requests: int
    warm_up: int
    prompt_tokens: int
    output_tokens: int
    seed: int

    def prompts(self) -> tuple[str, ...]:
        """What ``run-load`` makes of the same seed, as text."""
        return _texts(self, self.requests, "prompt")

    def warm_up_prompts(self) -> tuple[str, ...]:
        return _texts(self, self.warm_up, "warm-up")


@cache
def _texts(load: Load, count: int, name: str) -> tuple[str, ...]:
    tokenizer = open_tokenizer(str(TOKENIZER))
    source = GeneratedPrompts(
        GeneratedWords(load.seed, tokenizer), load.prompt_tokens, load.output_tokens, None, name=name
    )
    texts = tuple(source.get(number).text for number in range(count))
    for number, text in enumerate(texts):
        if (found := len(tokenizer.encode(text).ids)) != load.prompt_tokens:
            raise PromptLengthError(f"{name} {number} of seed {load.seed} has {found} tokens; choose another --seed")
    return texts
