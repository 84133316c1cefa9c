"""What to send: recipients of a manifest, or invented words of a wanted length; equal trace blocks are equal text.

Lengths are words without a tokenizer, which is near the token count of most models but is not it: what the server
counted stands in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from sembase.tokenizer import Tokenizer
from sembench.load.trace_file import BLOCK_TOKENS, TraceEntry
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
    """Recipients in the order of the manifest, again from the start when all were sent."""

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


class InventedPrompts:
    """Every prompt is new from its first word, so that no prefix cache serves it."""

    def __init__(
        self, words: InventedWords, prompt_tokens: int, max_tokens: int, tenant: str | None, name: str = "prompt"
    ) -> None:
        self._words = words
        self._name = name
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._tenant = tenant

    def get(self, number: int) -> Prompt:
        return Prompt(self._words.text(f"{self._name}-{number}", self._prompt_tokens), self._max_tokens, self._tenant)


class TracePrompts:
    """Lengths of a trace; where it names its blocks, equal names become equal text and shared prefixes stay shared."""

    def __init__(
        self,
        words: InventedWords,
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
        self._block = lru_cache(_BLOCKS_REMEMBERED)(lambda block: words.text(f"block-{block}", BLOCK_TOKENS))

    def get(self, number: int) -> Prompt:
        entry = self._entries[number % len(self._entries)]
        length = min(entry.prompt_tokens, self._max_prompt_tokens or entry.prompt_tokens)
        output = min(entry.output_tokens, self._max_tokens or entry.output_tokens)
        return Prompt(self._text(number, entry, length), output, self._tenant)

    def _text(self, number: int, entry: TraceEntry, length: int) -> str:
        parts: list[str] = []
        left = length
        for block in entry.block_ids:
            if left <= 0:
                break
            text = self._block(block)
            parts.append(text if left >= BLOCK_TOKENS else self._words.cut(text, left))
            left -= BLOCK_TOKENS
        if left > 0:
            parts.append(self._words.text(f"prompt-{number}", left))
        return " ".join(parts)


class PreparedPrompts:
    """The first prompts of a source, made before the load: making them meanwhile would delay what is being timed."""

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


class InventedWords:
    """Text by name and length, from a seed. With a tokenizer, cut to that many of its tokens."""

    def __init__(self, seed: int, tokenizer: Tokenizer | None) -> None:
        self._seed = seed
        self._tokenizer = tokenizer

    def text(self, name: str, tokens: int) -> str:
        draws = Draws("sembench-load", self._seed, name)
        # An invented word is at least one token of any tokenizer, so as many words are enough to cut from.
        return self.cut(" ".join([_WORDS[draws.below(len(_WORDS))] for _ in range(tokens)]), tokens)

    def cut(self, text: str, tokens: int) -> str:
        if self._tokenizer is None:
            return " ".join(text.split(" ", tokens)[:tokens])
        ends = self._tokenizer.encode(text).ends
        return text if len(ends) <= tokens else text[: int(ends[tokens - 1])]
