"""What is reuse beyond the prefix worth without and with repair? ``python -m benchmarks.simulator repair``.

Arms: prefix only; blended requests; repaired while idle; repaired if the session is likely to return. Claude Code's ids
are chained, so that equal text after a prefix break is *assumed* (``breaks``; ``--same-text`` is the assumed fraction).
The agent texts show their content, in blocks of 16 tokens. Mooncake's ids are chained and without
sessions: it shows no break, so its arms are equal, which the table states instead of a guess. Times are modelled.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scripts.data.folder import DATA

from benchmarks.console import progress, show_table, write_results
from benchmarks.simulator.breaks import PrefixBreak, find_breaks, keep_text
from semantic_kv.cache.result import Replay
from semantic_kv.policy.reuse import REUSE, Reuse, ReuseName
from semantic_kv.simulate import simulate
from sembase.latency import LatencyModel
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace

COLUMNS = (
    "trace",
    "arm",
    "blended",
    "computed",
    "reused",
    "repaired",
    "prefill s",
    "repair GPU s",
    "saved s",
    "saved s per GPU-hour",
    "next turn exact",
)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    trace: BlockTrace
    breaks: tuple[PrefixBreak, ...]
    capacity: int


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    latency = LatencyModel(
        base_ms=0.0, ms_per_uncached_token=arguments.ms_per_token, step_ms=arguments.step_ms, source="given"
    )
    rows: list[tuple[object, ...]] = []
    for case in _cases(arguments):
        rows += _arms(case, latency)
    title = (
        f"Reuse beyond the prefix; modelled: {latency.ms_per_uncached_token} ms a token, {latency.step_ms} ms a step"
    )
    show_table(title, COLUMNS, rows)
    write_results("simulator-repair", {"columns": COLUMNS, "rows": rows, "latency": latency.as_record()})
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator repair", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with traces/ and text/ (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=120, help="of the Claude Code trace (default: %(default)s)")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 20], help="sessions that run concurrently")
    parser.add_argument("--capacity", type=int, default=100_000, help="blocks of the cache (default: %(default)s)")
    parser.add_argument("--same-text", type=float, nargs="+", default=[1.0, 0.5], help="assumed after a break")
    parser.add_argument("--ms-per-token", type=float, default=0.08, help="modelled prefill (default: %(default)s)")
    parser.add_argument("--step-ms", type=float, default=20.0, help="modelled decode step (default: %(default)s)")
    return parser.parse_args(argv)


def _cases(arguments: argparse.Namespace) -> Iterator[Case]:
    for at_once in arguments.at_once:
        progress(f"Claude Code, {at_once} at once")
        options = {"max_sessions": arguments.sessions, "sessions_at_once": at_once}
        trace = load_trace(arguments.data / "traces" / "weka_claude_code.jsonl.gz", options=options)
        breaks = find_breaks(trace)
        for fraction in arguments.same_text:
            name = f"claude_code, {at_once} at once, same text {fraction:.0%} (assumed)"
            yield Case(name, keep_text(trace, breaks, fraction), breaks, arguments.capacity)
    for name in ("agent_miniswe", "agent_magagent", "agent_taubench"):
        trace = load_trace(arguments.data / "text" / f"{name}.jsonl.gz")
        yield Case(name, trace, find_breaks(trace), arguments.capacity)
    trace = load_trace(arguments.data / "traces" / "mooncake_conversation_trace.jsonl.gz")
    yield Case("mooncake (shows no breaks)", trace, (), arguments.capacity)


def _arms(case: Case, latency: LatencyModel) -> Iterator[tuple[object, ...]]:
    prompt = case.trace.prompt_tokens()
    broken = np.array([each.request for each in case.breaks], np.int64)
    spent: dict[ReuseName, float] = {}
    for name in REUSE:
        progress(f"{case.name}: {name}")
        run = simulate(case.trace, capacity=case.capacity, reuse=Reuse(name, latency))
        cached = run.per_request_hit_tokens.astype(np.int64) + run.per_request_reused_tokens
        spent[name] = float(latency.prefill_ms(prompt - cached, cached).sum()) / 1000
        repair_s = run.blended.repair_ms / 1000
        saved = spent["blend"] - spent[name] if name.startswith("blend_") else 0.0
        label = f"{case.name}: {case.trace.request_count:,} requests, {len(broken)} breaks" if name == "prefix" else ""
        yield (
            label,
            name,
            f"{run.blended.requests:,}",
            f"{int((prompt - cached).sum()):,}",
            f"{run.blended.reused_tokens:,}",
            f"{run.blended.repaired_tokens:,}",
            f"{spent[name]:,.1f}",
            f"{repair_s:,.1f}",
            f"{spent['prefix'] - spent[name]:+,.1f}",
            f"{saved / (repair_s / 3600):,.0f}" if repair_s else "-",
            _next_turn(case, run, prompt),
        )


def _next_turn(case: Case, run: Replay, prompt: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    """Breaks whose next turn hits the whole prompt of the broken turn, as it would in a session without a break."""
    turns = [(each.request, each.following) for each in case.breaks if each.following >= 0]
    whole = sum(int(run.per_request_hit_tokens[after]) >= 0.99 * prompt[at] for at, after in turns)
    return f"{whole} of {len(turns)}"
