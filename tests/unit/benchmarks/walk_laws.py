"""Two readings of the same recorded chats, to be compared: estimates of two records, and two counts of what repeats."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.walk.compare import read_json

from sembase.tokenizer import open_tokenizer
from sembase.trace.build import in_time_order
from sembase.trace.digest_tokens import digest_tokens
from sembase.trace.load import read_records
from sembase.trace.reuse_counter import PREFIX_STEP, ReuseCounter
from sembase.trace.token_rows import TokenRows
from sembench.replay.pool import DonorPool
from semblend.contract import Namespace, ReusePlan
from semblend.pipeline import Planner
from semblend.plan.gates import Gates
from semblend.settings import Settings

MAX_DIFFERENCE: Final = 0.01


def estimate(traces: Path, *more: str) -> dict[str, Any]:
    output = traces.parent / "estimate.json"
    words = ("estimate", str(traces), "--output", str(traces.parent / "estimate.html"), "--json", str(output))
    subprocess.run([sys.executable, "-m", "semblend.cli", *words, "--quiet", *more], check=True, stdout=sys.stderr)
    return read_json(output)


def figures_of(found: Mapping[str, Any]) -> dict[str, float]:
    """What a record with text and a redacted one can both show; causes of breaks need text."""
    figures = found["figures"]
    plans = figures["anywhere"]
    return {
        "requests": figures["requests"],
        "prompt tokens": figures["prompt"]["tokens"],
        "prefix tokens": figures["prefix_tokens"],
        "found beyond it": sum(each["work"]["tokens"] for each in plans["found"].values()),
        "served by default gates": sum(each["work"]["tokens"] for each in plans["served"].values()),
        "requests served": sum(each["requests"] for each in plans["served"].values()),
        "prefill seconds": found["verdict"]["prefill_s"],
        "seconds saved": found["verdict"]["saved_s"],
    }


@dataclass(slots=True)
class Counted:
    """Tokens: of exact prefixes, and covered by digests or by the planner."""

    requests: int = 0
    prefix: int = 0
    by_digests: int = 0
    by_planner: int = 0


def count(trace: Path, key: bytes) -> Counted:
    """Reuse counted from digests under ``key``, and by the planner's search on the same tokens in time order."""
    rows, counter, found = TokenRows(open_tokenizer(None)), ReuseCounter(), Counted()
    pools: dict[str | None, DonorPool] = {}
    with Planner(settings=Settings(embedder="none"), gates=Gates(min_reuse_ratio=0.0)) as planner:
        for record in in_time_order(read_records(trace), trace.name):
            tokens = rows.of_record(record)
            namespace = Namespace(tenant=record.tenant_id, model=None)
            pool = pools.setdefault(record.tenant_id, DonorPool(PREFIX_STEP))
            ids = tokens.astype(np.int64)
            prefix = pool.evidence(ids).prefix_blocks * PREFIX_STEP
            plan = planner.plan(tokens, namespace, exact_prefix_tokens=prefix)
            found.requests += 1
            found.prefix += prefix
            found.by_planner += prefix + (plan.reused_tokens if isinstance(plan, ReusePlan) else 0)
            found.by_digests += counter.add(record.tenant_id, digest_tokens(tokens, key)).reusable_tokens
            pool.add(ids)
            planner.register(str(found.requests), tokens, namespace)
    return found
