"""Prompts to send: recipients of a manifest, lengths and repeated content of a trace, or generated words.

Traces have any format that ``sembase.trace`` reads. Without a tokenizer lengths are counted in words, which only
approximates a model's token count; the result has the server's count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from sembase.errors import ConfigurationError, SemBlendError
from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.locate import trace_digest, trace_files
from sembench.load.schedule import Limit
from sembench.manifest import WorkloadItem, manifest_digest, read_manifest
from sembench.workload.seeded import Draws

DEFAULT_MAX_TOKENS: Final = 64
DEFAULT_PROMPT_TOKENS: Final = 512
_SYLLABLES: Final = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")
_WORDS: Final = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)
_BLOCKS_REMEMBERED: Final = 4096
_PREPARED_CHARS: Final = 64_000_000
# Azure traces have no content: one block per prompt, none of them repeated. Ids of Mooncake need not be chained here.
_OPTIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "azure": {"prefix_share": 0.0, "block_tokens": 1 << 30},
    "mooncake": {"unchained": "by_path"},
}


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """A request of a trace; ``at_s`` counts from its first request.

    ``blocks`` are (id, tokens) in the order of the prompt; equal ids are equal content.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[tuple[int, int], ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    manifest: Path | None
    trace: Path | None
    prompt_tokens: int | None
    max_prompt_tokens: int | None
    max_tokens: int | None
    tokenizer: str | None
    tenant: str | None
    seed: int
    requests: int | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Workload:
    """``source`` describes the prompts in the result, without paths. ``trace`` is set if its arrival times are used."""

    prompts: PromptSource
    warm_up_prompts: PromptSource
    limit: Limit
    trace: list[TraceEntry] | None
    source: dict[str, Any]


def open_workload(options: WorkloadOptions) -> Workload:
    """A manifest or a trace is sent once by default; generated prompts need a limit."""
    if sum(given is not None for given in (options.manifest, options.prompt_tokens, options.trace)) > 1:
        raise ConfigurationError("--manifest, --prompt-tokens and --trace are mutually exclusive; pass one of them")
    tokenizer = None if options.tokenizer is None else open_tokenizer(options.tokenizer)
    words = GeneratedWords(options.seed, tokenizer)
    max_tokens = options.max_tokens or DEFAULT_MAX_TOKENS
    length = options.prompt_tokens or DEFAULT_PROMPT_TOKENS
    source: dict[str, Any] = {"tokenizer": None if tokenizer is None else tokenizer.name}
    requests, trace = options.requests, None
    prompts: PromptSource
    if options.manifest is not None:
        items = read_manifest(options.manifest)
        if not items:
            raise ConfigurationError(f"{options.manifest} holds no items")
        prompts = ManifestPrompts(items, max_tokens, options.tenant)
        source |= {"manifest": options.manifest.name, "digest": manifest_digest(options.manifest), "items": len(items)}
        if requests is None and options.duration_s is None:
            requests = len(items)
    elif options.trace is not None:
        trace = read_trace(options.trace)
        prompts = TracePrompts(
            words,
            trace,
            max_prompt_tokens=options.max_prompt_tokens,
            max_tokens=options.max_tokens,
            tenant=options.tenant,
        )
        source |= {"trace": options.trace.name, "digest": trace_digest(options.trace), "entries": len(trace)}
    else:
        if requests is None and options.duration_s is None:
            raise ConfigurationError("pass --duration S or --requests N: generated prompts have no end")
        prompts = GeneratedPrompts(words, length, max_tokens, options.tenant)
        source |= {"prompt_tokens": length}
    warm_up = GeneratedPrompts(words, length, max_tokens, options.tenant, name="warm-up")
    return Workload(prompts, warm_up, Limit(requests, options.duration_s), trace, source)


def read_trace(path: Path) -> list[TraceEntry]:
    """Entries in order of time. Without an output length (no usage in the reply), an answer has ``DEFAULT_MAX_TOKENS``.

    A file without times or lengths is rejected in one line that names the formats.
    """
    from sembase.trace.formats import FORMATS  # noqa: PLC0415  (its compiled loops are needed for --trace only)
    from sembase.trace.load import load_trace, sniff_format  # noqa: PLC0415

    formats = f"run-load reads {', '.join(FORMATS.names())}, with a time for every request"
    files = trace_files(path)
    try:
        name = sniff_format(files[0])
    except (SemBlendError, ValueError):
        raise ConfigurationError(f"--trace {path}: unknown trace format; {formats}") from None
    try:
        trace = load_trace(path, options=_OPTIONS.get(name, {}) if len(files) == 1 else {})
    except (SemBlendError, EOFError, ValueError) as error:
        raise ConfigurationError(f"--trace {path}: not a valid '{name}' trace: {error}; {formats}") from None
    is_missing = np.isnan(trace.arrival_ms)
    if is_missing.any():
        number = int(np.argmax(is_missing)) + 1
        raise ConfigurationError(f"--trace {path}: request {number} ('{name}') has no time; {formats}")
    ids, tokens = trace.content[trace.nodes].tolist(), trace.node_tokens[trace.nodes].tolist()
    start_ms = float(trace.arrival_ms.min())
    entries = []
    for number in np.argsort(trace.arrival_ms, kind="stable").tolist():
        first, end = int(trace.offsets[number]), int(trace.offsets[number + 1])
        blocks = tuple(zip(ids[first:end], tokens[first:end], strict=True))
        at_s = (float(trace.arrival_ms[number]) - start_ms) / 1000.0
        prompt_tokens, output_tokens = sum(tokens[first:end]), int(trace.output_tokens[number])
        output_tokens = output_tokens if output_tokens >= 0 else DEFAULT_MAX_TOKENS
        # A request without a token on either side cannot be sent, but it was a request.
        entries.append(TraceEntry(at_s, max(1, prompt_tokens), max(1, output_tokens), blocks))
    return entries
