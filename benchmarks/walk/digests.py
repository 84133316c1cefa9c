"""``python -m benchmarks.walk.digests [TRACE ...]``: reuse counted from digests beside the planner's search on text.

Both read the same tokens in time order, and every earlier prompt of a tenant is a donor. The counter sees two keyed
bits per token; the planner indexes the tokens, gets the exact prefix (16-token blocks, compared as tokens) and plans
every run of at least 64 tokens. The figure is the fraction of prompt tokens that prefix and runs cover together.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.console import progress, show_table, show_verdicts
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.targets import Verdict
from sembase.tokenizer import open_tokenizer
from sembase.trace.build import in_time_order
from sembase.trace.digest_tokens import KEY_BYTES, digest_tokens
from sembase.trace.files import trace_name
from sembase.trace.load import read_records
from sembase.trace.reuse_counter import PREFIX_STEP, ReuseCounter
from sembase.trace.token_rows import TokenRows
from sembench.replay.pool import DonorPool
from semblend.contract import Namespace, ReusePlan
from semblend.pipeline import Planner
from semblend.plan.gates import Gates
from semblend.settings import Settings

MAX_DIFFERENCE = 0.01
TRACES = tuple(DEFAULT_TEXTS / f"agent_{name}.jsonl.gz" for name in ("miniswe", "magagent", "taubench"))


@dataclass(slots=True)
class Counted:
    """Tokens: of the prompts, of exact prefixes, and covered by digests or by the planner."""

    requests: int = 0
    prompt: int = 0
    prefix: int = 0
    by_digests: int = 0
    by_planner: int = 0

    @property
    def difference(self) -> float | None:
        """Relative to the planner's figure."""
        return abs(self.by_digests - self.by_planner) / self.by_planner if self.by_planner else None


def count(
    trace: Path, max_requests: int | None = None, tokenizer: str | None = None, key: bytes | None = None
) -> Counted:
    """``key`` is that of the digests; random if not given."""
    rows, counter, key = TokenRows(open_tokenizer(tokenizer)), ReuseCounter(), key or secrets.token_bytes(KEY_BYTES)
    pools: dict[str | None, DonorPool] = {}
    found = Counted()
    gates = Gates(min_reuse_ratio=0.0)
    with Planner(settings=Settings(embedder="none"), gates=gates) as planner:
        for record in in_time_order(read_records(trace), trace.name):
            if found.requests == max_requests:
                break
            tokens = rows.of_record(record)
            namespace = Namespace(tenant=record.tenant_id, model=None)
            pool = pools.setdefault(record.tenant_id, DonorPool(PREFIX_STEP))
            ids = tokens.astype(np.int64)
            prefix = pool.evidence(ids).prefix_blocks * PREFIX_STEP
            plan = planner.plan(tokens, namespace, exact_prefix_tokens=prefix)
            found.requests += 1
            found.prompt += len(tokens)
            found.prefix += prefix
            found.by_planner += prefix + (plan.reused_tokens if isinstance(plan, ReusePlan) else 0)
            found.by_digests += counter.add(record.tenant_id, digest_tokens(tokens, key)).reusable_tokens
            pool.add(ids)
            planner.register(str(found.requests), tokens, namespace)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, help="traces with text (default: the agent traces)")
    parser.add_argument("--max-requests", type=int, help="the first N requests of each")
    parser.add_argument("--tokenizer", help="tokenizer.json (default: the built-in rule)")
    options = parser.parse_args()
    rows, verdicts = [], []
    for trace in options.traces or TRACES:
        if not trace.exists():
            progress(f"nothing counted: no {trace}")
            return 3
        progress(trace_name(trace))
        found = count(trace, options.max_requests, options.tokenizer)
        shares = [f"{each / found.prompt:.4%}" for each in (found.prefix, found.by_digests, found.by_planner)]
        rows.append((trace_name(trace), found.requests, f"{found.prompt:,}", *shares))
        verdicts.append(Verdict(f"{trace_name(trace)}: relative difference", "<=", MAX_DIFFERENCE, found.difference))
    columns = ("trace", "requests", "tokens", "exact prefix", "any position, digests", "any position, planner")
    show_table("Reuse from digests beside the planner's own search", columns, rows)
    show_verdicts(verdicts)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
