"""Prompts to send: recipients of a manifest, or generated words of a given length; equal trace blocks are equal text.

Without a tokenizer lengths are counted in words, which only approximates a model's token count. The result has the
server's count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from sembase.tokenizer import Tokenizer
from sembench.load.trace_file import TraceEntry
from sembench.manifest import WorkloadItem
from sembench.workload.seeded import Draws

_SYLLABLES: Final = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")
_WORDS: Final = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)
_BLOCKS_REMEMBERED: Final = 4096
_PREPARED_CHARS: Final = 64_000_000


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    max_tokens: int
    tenant: str | None = None
    template: str | None = None


class PromptSource(Protocol):
    def get(self, number: int) -> Prompt:
        """The prompt of request ``number``; the same for the same number, seed and source."""


class ManifestPrompts:
    """Recipients in the order of the manifest, starting over when all were sent."""

    def __init__(self, items: Sequence[WorkloadItem], max_tokens: int, tenant: str | None) -> None:
        self._items = items
        self._max_tokens = max_tokens
        self._tenant = tenant

    def get(self, number: int) -> Prompt:
        item = self._items[number % len(self._items)]
        template = item.metadata.get("template")
        return Prompt(
            item.recipient_prompt,
            self._max_tokens,
            item.tenant if item.tenant is not None else self._tenant,
            None if template is None else str(template),
        )


class GeneratedPrompts:
    """Every prompt differs from the first word on, so that no prefix cache serves it."""

    def __init__(
        self, words: GeneratedWords, prompt_tokens: int, max_tokens: int, tenant: str | None, name: str = "prompt"
    ) -> None:
        self._words = words
        self._name = name
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._tenant = tenant

    def get(self, number: int) -> Prompt:
        return Prompt(self._words.text(f"{self._name}-{number}", self._prompt_tokens), self._max_tokens, self._tenant)


class TracePrompts:
    """Prompts with the lengths of a trace. Equal block ids, if it has any, become equal text: prefixes stay shared."""

    def __init__(
        self,
        words: GeneratedWords,
        entries: Sequence[TraceEntry],
        *,
        max_prompt_tokens: int | None,
        max_tokens: int | None,
        tenant: str | None,
    ) -> None:
        self._words = words
        self._entries = entries
        self._max_prompt_tokens = max_prompt_tokens
        self._max_tokens = max_tokens
        self._tenant = tenant
        self._block = lru_cache(_BLOCKS_REMEMBERED)(lambda block, tokens: words.text(f"block-{block}", tokens))

    def get(self, number: int) -> Prompt:
        entry = self._entries[number % len(self._entries)]
        length = min(entry.prompt_tokens, self._max_prompt_tokens or entry.prompt_tokens)
        output = min(entry.output_tokens, self._max_tokens or entry.output_tokens)
        return Prompt(self._text(number, entry, length), output, self._tenant)

    def _text(self, number: int, entry: TraceEntry, length: int) -> str:
        parts: list[str] = []
        left = length
        for block, tokens in entry.blocks:
            if left <= 0:
                break
            text = self._block(block, tokens)
            parts.append(text if left >= tokens else self._words.cut(text, left))
            left -= tokens
        if left > 0:
            parts.append(self._words.text(f"prompt-{number}", left))
        return " ".join(parts)


class PreparedPrompts:
    """The first prompts of a source, built before the load: building them during it would delay requests."""

    def __init__(self, source: PromptSource, count: int) -> None:
        self._source = source
        self._ready: dict[int, Prompt] = {}
        left = _PREPARED_CHARS
        for number in range(count):
            self._ready[number] = prompt = source.get(number)
            left -= len(prompt.text)
            if left <= 0:
                break

    def get(self, number: int) -> Prompt:
        prompt = self._ready.pop(number, None)
        return self._source.get(number) if prompt is None else prompt


class GeneratedWords:
    """Text by name and length, from a seed. With a tokenizer, cut to that many of its tokens."""

    def __init__(self, seed: int, tokenizer: Tokenizer | None) -> None:
        self._seed = seed
        self._tokenizer = tokenizer

    def text(self, name: str, tokens: int) -> str:
        draws = Draws("sembench-load", self._seed, name)
        # A generated word is at least one token in any tokenizer, so this many words are enough.
        return self.cut(" ".join([_WORDS[draws.below(len(_WORDS))] for _ in range(tokens)]), tokens)

    def cut(self, text: str, tokens: int) -> str:
        if self._tokenizer is None:
            return " ".join(text.split(" ", tokens)[:tokens])
        ends = self._tokenizer.encode(text).ends
        return text if len(ends) <= tokens else text[: int(ends[tokens - 1])]
