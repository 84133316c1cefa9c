"""From what the user names (a manifest, a trace, a length) to prompts, their number and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.tokenizer import open_tokenizer
from sembench.load.prompts import InventedPrompts, InventedWords, ManifestPrompts, PromptSource, TracePrompts
from sembench.load.schedule import Limit
from sembench.load.trace_file import TraceEntry, read_trace
from sembench.manifest import manifest_digest, read_manifest

DEFAULT_MAX_TOKENS: Final = 64
DEFAULT_PROMPT_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class WorkloadWish:
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
    """``source`` is for the result: names and digests, no paths. ``trace`` is given if the times are to be its."""

    prompts: PromptSource
    warm_up_prompts: PromptSource
    limit: Limit
    trace: list[TraceEntry] | None
    source: dict[str, Any]


def open_workload(wish: WorkloadWish) -> Workload:
    """A manifest or a trace is sent once unless told otherwise; invented prompts have no end of their own."""
    if sum(given is not None for given in (wish.manifest, wish.prompt_tokens, wish.trace)) > 1:
        raise ConfigurationError("--manifest, --prompt-tokens and --trace each say what to send; pass one of them")
    tokenizer = None if wish.tokenizer is None else open_tokenizer(wish.tokenizer)
    words = InventedWords(wish.seed, tokenizer)
    max_tokens = wish.max_tokens or DEFAULT_MAX_TOKENS
    length = wish.prompt_tokens or DEFAULT_PROMPT_TOKENS
    source: dict[str, Any] = {"tokenizer": None if tokenizer is None else tokenizer.name}
    requests, trace = wish.requests, None
    prompts: PromptSource
    if wish.manifest is not None:
        items = read_manifest(wish.manifest)
        if not items:
            raise ConfigurationError(f"{wish.manifest} holds no items")
        prompts = ManifestPrompts(items, max_tokens, wish.tenant)
        source |= {"manifest": wish.manifest.name, "digest": manifest_digest(wish.manifest), "items": len(items)}
        if requests is None and wish.duration_s is None:
            requests = len(items)
    elif wish.trace is not None:
        trace = read_trace(wish.trace)
        prompts = TracePrompts(
            words, trace, max_prompt_tokens=wish.max_prompt_tokens, max_tokens=wish.max_tokens, tenant=wish.tenant
        )
        source |= {"trace": wish.trace.name, "digest": manifest_digest(wish.trace), "entries": len(trace)}
    else:
        if requests is None and wish.duration_s is None:
            raise ConfigurationError("pass --duration S or --requests N: invented prompts have no end")
        prompts = InventedPrompts(words, length, max_tokens, wish.tenant)
        source |= {"prompt_tokens": length}
    warm_up = InventedPrompts(words, length, max_tokens, wish.tenant, name="warm-up")
    return Workload(prompts, warm_up, Limit(requests, wish.duration_s), trace, source)
