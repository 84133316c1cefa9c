"""A manifest, a trace or a length in; prompts, their number and their provenance out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.tokenizer import open_tokenizer
from sembench.load.prompts import GeneratedPrompts, GeneratedWords, ManifestPrompts, PromptSource, TracePrompts
from sembench.load.schedule import Limit
from sembench.load.trace_file import TraceEntry, read_trace
from sembench.manifest import manifest_digest, read_manifest

DEFAULT_MAX_TOKENS: Final = 64
DEFAULT_PROMPT_TOKENS: Final = 512


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
    """``source`` is for the result: names and digests, no paths. ``trace`` is set if its arrival times are used."""

    prompts: PromptSource
    warm_up_prompts: PromptSource
    limit: Limit
    trace: list[TraceEntry] | None
    source: dict[str, Any]


def open_workload(options: WorkloadOptions) -> Workload:
    """A manifest or a trace is sent once by default; generated prompts need a limit."""
    if sum(given is not None for given in (options.manifest, options.prompt_tokens, options.trace)) > 1:
        raise ConfigurationError("--manifest, --prompt-tokens and --trace exclude each other; pass one of them")
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
        source |= {"trace": options.trace.name, "digest": manifest_digest(options.trace), "entries": len(trace)}
    else:
        if requests is None and options.duration_s is None:
            raise ConfigurationError("pass --duration S or --requests N: generated prompts have no end")
        prompts = GeneratedPrompts(words, length, max_tokens, options.tenant)
        source |= {"prompt_tokens": length}
    warm_up = GeneratedPrompts(words, length, max_tokens, options.tenant, name="warm-up")
    return Workload(prompts, warm_up, Limit(requests, options.duration_s), trace, source)
