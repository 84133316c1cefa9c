"""Which scenarios a run consists of: ours at every size, each rival on what it can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.planner.client import our_command, our_environment
from benchmarks.planner.rivals import recipes
from benchmarks.planner.scenario import OURS, OURS_LISTS, LookupBlock, Scenario, blocks_of
from benchmarks.planner.tokens import DONOR_TOKENS, HEAD_TOKENS

ZIPF, BOILERPLATE, REAL = "zipf", "zipf + 600-token head", "real text + 600-token head"
LONG = {8_192: 200, 32_768: 100, 131_072: 40}


@dataclass(frozen=True, slots=True)
class RunOptions:
    quick: bool
    sizes: tuple[int, ...]
    subjects: tuple[str, ...]
    fill_limit_s: float
    block_limit_s: float
    seed: int
    real_path: Path | None
    real_donors: int


def scenarios(options: RunOptions) -> Iterator[Scenario]:
    if "ours" in options.subjects:
        yield from _ours(options)
    if "lmcache" in options.subjects:
        yield from _lmcache(options)
    if "semblend" in options.subjects:
        yield from _semblend(options)


def _zipf(options: RunOptions, head_tokens: int = 0) -> dict[str, Any]:
    return {"kind": "zipf", "seed": options.seed, "head_tokens": head_tokens}


def _own(
    options: RunOptions, profile: str, source: dict[str, Any], donors: int, blocks: tuple[LookupBlock, ...]
) -> Scenario:
    return Scenario(OURS, our_command(), our_environment(), profile, source, donors, blocks, seed=options.seed)


def _ours(options: RunOptions) -> Iterator[Scenario]:
    full = blocks_of(60, 60, {8_192: 20}) if options.quick else blocks_of(700, 700, LONG)
    headed = blocks_of(60, 60, {8_192: 20}, head_only=60) if options.quick else blocks_of(300, 300, LONG, head_only=300)
    for donors in options.sizes:
        yield _own(options, ZIPF, _zipf(options), donors, full)
    top = _boilerplate_size(options)
    short = tuple(block for block in full if block.prompt_tokens == DONOR_TOKENS)
    listed = _own(options, ZIPF, _zipf(options), top, short)
    yield replace(listed, subject=OURS_LISTS, command=our_command(lists=True))
    yield _own(options, BOILERPLATE, _zipf(options, HEAD_TOKENS), top, headed)
    if options.real_path is not None:
        yield _own(options, REAL, {"kind": "file", "path": str(options.real_path)}, options.real_donors, headed)


def _rival(options: RunOptions, rival: recipes.Rival, donors: int, blocks: tuple[LookupBlock, ...]) -> Scenario:
    return Scenario(
        rival.label,
        rival.command(),
        rival.environment,
        ZIPF,
        _zipf(options),
        donors,
        blocks,
        options.fill_limit_s,
        options.block_limit_s,
        options.seed,
    )


def _lmcache(options: RunOptions) -> Iterator[Scenario]:
    blocks = blocks_of(60, 60, {8_192: 20}) if options.quick else blocks_of(300, 300, LONG)
    top = _boilerplate_size(options)
    for rival in (recipes.LMCACHE_256, recipes.LMCACHE_64):
        for donors in options.sizes:
            if donors <= 50_000:
                yield _rival(options, rival, donors, blocks)
        headed = (*blocks, LookupBlock("head_only", DONOR_TOKENS, 60 if options.quick else 300))
        scenario = _rival(options, rival, top, headed)
        yield replace(scenario, profile=BOILERPLATE, source=_zipf(options, HEAD_TOKENS))
        if options.real_path is not None:
            source = {"kind": "file", "path": str(options.real_path)}
            yield replace(scenario, profile=REAL, source=source, donors=options.real_donors)


def _semblend(options: RunOptions) -> Iterator[Scenario]:
    """Look-ups take up to seconds each, so counts are small and every block is bounded in time."""
    blocks = blocks_of(3, 2, {}) if options.quick else blocks_of(20, 8, {8_192: 5})
    for donors in options.sizes:
        if donors <= 50_000:
            yield _rival(options, recipes.SEMBLEND_JACCARD, donors, blocks)
    if options.real_path is not None:
        scenario = _rival(options, recipes.SEMBLEND_MINILM, min(1_000, options.real_donors), blocks)
        yield replace(scenario, profile=REAL, source={"kind": "file", "path": str(options.real_path)})
        scenario = _rival(options, recipes.SEMBLEND_JACCARD, min(1_000, options.real_donors), blocks)
        yield replace(scenario, profile=REAL, source={"kind": "file", "path": str(options.real_path)})


def _boilerplate_size(options: RunOptions) -> int:
    return max((size for size in options.sizes if size <= 50_000), default=min(options.sizes))
