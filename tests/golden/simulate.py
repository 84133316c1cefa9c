"""The simulator: each decision of each policy on a small made-up trace, and the table of one study."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from tests.golden.compare import as_lines

from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import CACHE_MODELS, CacheModel
from semantic_kv.cache.spec import cache_spec
from semantic_kv.cli.main import main
from sembase.labels import LABELS
from sembase.trace.columns import BlockTrace

EVICTIONS: Final = (
    "fifo",
    "lru",
    "lfu",
    "s3fifo",
    "sieve",
    "size_aware_lru",
    "static_semantic",
    "adaptive_semantic",
)
CAPACITY: Final = 40
REQUESTS: Final = 300
SHOWN: Final = 24  # decisions that are written out; a digest stands for all
STUDY: Final = """\
experiment: golden
description: a study of two capacities
source: {workload: low_memory_rag_stress, sessions: 6, requests_per_session: 4}
seeds: [1, 2]
unit: tokens
capacities: [1200, 4000]
policies: [lru, static_semantic, adaptive_semantic+score]
"""


def decided() -> dict[str, str]:
    """Every admission (+block) and eviction (-block), in order."""
    cases = [(evict, "always") for evict in EVICTIONS] + [("lru", "score"), ("adaptive_semantic", "score")]
    lines = [line for evict, admit in cases for model in CACHE_MODELS for line in _decisions(evict, admit, model)]
    return {"simulate/decisions.txt": as_lines(lines)}


def _decisions(evict: str, admit: str, model: CacheModel) -> Iterator[str]:
    replay = CompiledReplay(
        cache_spec(capacity=CAPACITY, evict=evict, admit=admit, model=model, seed=3), journal_entries=100_000
    )
    replay.feed(_trace())
    result = replay.result()
    words = [f"+{entry}" if entry >= 0 else f"-{~entry}" for entry in replay.journal.tolist()]
    hits = " ".join(map(str, result.per_request_hit_blocks.tolist()))
    yield f"{evict}, {admit}, {model}"
    yield f"  {result.hit_blocks} of {result.references} blocks, {result.hit_tokens} of {result.prompt_tokens} tokens"
    yield f"  admitted {result.admitted}, refused {result.refused}, evicted {result.evicted}"
    first_eviction = next((at for at, word in enumerate(words) if word.startswith("-")), 0)
    yield f"  from the first eviction: {' '.join(words[first_eviction : first_eviction + SHOWN])}"
    yield f"  decisions {_digest(' '.join(words))}, hits by request {_digest(hits)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _trace() -> BlockTrace:
    """Sessions that grow, branch and ask the same again; labels and sizes differ from block to block."""
    draws = np.random.default_rng(11)
    parent: list[int] = []
    rows: list[list[int]] = []
    paths: list[list[int]] = [[] for _ in range(12)]
    for _ in range(REQUESTS):
        path = paths[int(draws.integers(0, 12) * draws.integers(0, 12) // 12)]
        if draws.random() < 0.5 or not path:
            del path[int(draws.integers(1, 10)) :]
            for _ in range(int(draws.integers(1, 4))):
                parent.append(path[-1] if path else -1)
                path.append(len(parent) - 1)
        rows.append(path.copy())
    unknown = np.full(REQUESTS, np.nan)
    return BlockTrace(
        name="golden",
        block_tokens=None,
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        nodes=np.array([node for row in rows for node in row], np.int32),
        parent=np.array(parent, np.int32),
        content=np.arange(len(parent), dtype=np.int32),
        node_tokens=draws.integers(1, 200, len(parent)).astype(np.int32),
        node_label=draws.integers(0, len(LABELS), len(parent)).astype(np.uint8),
        arrival_ms=np.arange(REQUESTS, dtype=np.float64) * 1500.0,
        session=np.full(REQUESTS, -1, np.int32),
        tenant=np.full(REQUESTS, -1, np.int32),
        output_tokens=np.full(REQUESTS, -1, np.int32),
        finish=draws.integers(-1, 4, REQUESTS).astype(np.int32),
        observed_ttft_ms=unknown,
        observed_prefill_tokens=unknown.copy(),
        observed_hit_tokens=unknown.copy(),
    )


def studied(folder: Path) -> dict[str, str]:
    """One experiment as a user runs it; the names of its files are in ``test_promised_scripts``."""
    config = folder / "golden.yaml"
    config.write_text(STUDY, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["run", "--config", str(config), "--output-dir", str(folder / "out"), "--quiet"])
    assert code == 0, f"the experiment ended with {code}"
    (results,) = (folder / "out").glob("*_golden")
    return {"simulate/study_metrics.csv": (results / "metrics.csv").read_text(encoding="utf-8")}
