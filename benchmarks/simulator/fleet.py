"""What sharing KV is worth to fleets of 4 to 1,024 replicas: ``python -m benchmarks.simulator fleet``.

Arms: private caches; a tier of exact prefixes; donors of the fleet; both. Document questions are made of L-Eval's
documents and questions and of eight made-up applications; Claude Code's text after a prefix break is *assumed* to stay
the same (``breaks``); Mooncake shows exact prefixes only. Blended requests are taken to be repaired before
the next request. Times and bytes are modelled from the prices given, never measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.data.folder import DATA

from benchmarks.console import progress, show_table, write_results
from benchmarks.corpus import TOKENIZER
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.fleet.replay.streams import as_trace, document_questions
from benchmarks.simulator.breaks import find_breaks, keep_text
from benchmarks.simulator.replicas import SHARING, WRITES, Carrier, FleetReplay, simulate_fleet
from semantic_kv.policy.reuse import Reuse
from sembase.latency import LatencyModel
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace

COLUMNS = ("trace", "replicas", "shared", "exact", "donors", "both", "moved GB", "store GB", "refused", "prefill s")
BLOCK_TOKENS = 16


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    carrier = Carrier(arguments.bytes_per_token, arguments.gb_per_s * 1e9, arguments.ms_per_fetch)
    latency = LatencyModel(base_ms=0.0, ms_per_uncached_token=arguments.ms_per_token, source="given")
    rows: list[tuple[object, ...]] = []
    for trace in _traces(arguments):
        capacity = arguments.cache_tokens // (trace.block_tokens or BLOCK_TOKENS)
        for replicas in arguments.replicas:
            for sharing in SHARING:
                progress(f"{trace.name}: {replicas} replicas, shared: {sharing}")
                found = simulate_fleet(
                    trace,
                    replicas=replicas,
                    capacity=capacity,
                    sharing=sharing,
                    writes=arguments.writes,
                    is_repaired=True,
                    reuse=Reuse("blend", latency),
                    carrier=carrier,
                )
                rows.append(_row(trace.name, sharing, found, carrier, latency))
    title = (
        f"Shared KV; modelled: {arguments.ms_per_token} ms a token, {carrier.bytes_per_token:,} bytes a token, "
        f"{arguments.gb_per_s} GB/s and {carrier.ms_per_fetch} ms a fetch; {arguments.cache_tokens:,} tokens a replica"
    )
    show_table(title, COLUMNS, rows)
    write_results("simulator-fleet", {"columns": COLUMNS, "rows": rows, "title": title})
    return 0


def _traces(arguments: argparse.Namespace) -> Iterator[BlockTrace]:
    if TOKENIZER.is_file() and (arguments.data / "text").is_dir():
        requests = document_questions(arguments.data / "text", TokenizerCodec(TOKENIZER), arguments.requests, 3)
        yield as_trace(f"documents, {len(requests):,} requests", requests, BLOCK_TOKENS)
    options = {"max_sessions": arguments.sessions, "sessions_at_once": 20}
    claude = load_trace(arguments.data / "traces" / "weka_claude_code.jsonl.gz", options=options)
    yield keep_text(claude, find_breaks(claude))
    yield load_trace(arguments.data / "traces" / "mooncake_conversation_trace.jsonl.gz")


def _row(name: str, sharing: str, found: FleetReplay, carrier: Carrier, latency: LatencyModel) -> tuple[object, ...]:
    prompt, exact, reused = (int(each.sum()) for each in (found.prompt, found.exact, found.reused))
    gigabytes = carrier.bytes_per_token / 1e9
    return (
        name,
        found.replicas,
        sharing,
        f"{exact / prompt:.3f}",
        f"{reused / prompt:.3f}",
        f"{found.cached_fraction:.3f}",
        f"{gigabytes * (found.loaded_tokens + found.fetched_tokens):,.0f}",
        f"{gigabytes * (found.tier_tokens + found.donor_tokens):,.0f}",
        f"{found.refused_fetches:,}",
        f"{float(latency.prefill_ms(found.prompt - found.exact - found.reused, found.exact).sum()) / 1e3:,.0f}",
    )


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator fleet", description=__doc__)
    price = Carrier()
    parser.add_argument("--data", type=Path, default=DATA, help="folder with traces/ and text/ (default: %(default)s)")
    parser.add_argument("--replicas", type=int, nargs="+", default=[4, 16, 64, 256, 1_024])
    parser.add_argument("--requests", type=int, default=900, help="document questions (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=60, help="of the Claude Code trace (default: %(default)s)")
    parser.add_argument("--cache-tokens", type=int, default=500_000, help="KV of a replica (default: %(default)s)")
    parser.add_argument("--writes", choices=WRITES, default="computed", help="which donors are written")
    parser.add_argument("--ms-per-token", type=float, default=0.08, help="modelled prefill (default: %(default)s)")
    parser.add_argument("--bytes-per-token", type=int, default=price.bytes_per_token, help="default: %(default)s")
    parser.add_argument("--gb-per-s", type=float, default=price.bytes_per_s / 1e9, help="default: %(default)s")
    parser.add_argument("--ms-per-fetch", type=float, default=price.ms_per_fetch, help="default: %(default)s")
    return parser.parse_args(argv)
