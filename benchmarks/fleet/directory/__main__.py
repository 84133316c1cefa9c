"""``make bench-fleet-directory``: the directory of fleet donors in a real Valkey server, without an engine.

Recall against the discovery oracle with donors spread over four planners, bytes per anchor and look-up time as it
grows, tenants that must share nothing, and entries whose donors are gone.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import valkey
from scripts.engines.valkey import start_valkey

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER, CorpusUnavailableError, load_corpus
from benchmarks.discovery.cases import CASES, NEGATIVE_CASES, CaseMaker
from benchmarks.discovery.codec import Codec, TokenizerCodec
from benchmarks.discovery.judge import CaseScore, Judge
from benchmarks.discovery.library import Library, build_library
from benchmarks.discovery.tenants import ALPHA
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.fleet.directory.isolation import stale_verdicts, tenant_verdicts
from benchmarks.fleet.directory.recall import SpreadPlanner, open_planner
from benchmarks.fleet.directory.size import SizeReading, grow
from benchmarks.targets import Spread, Verdict
from semblend.fleet.directory.valkey import ValkeyDirectory
from semblend.fleet.keys import SpaceKeys

PLANNERS = 4
SIZES: dict[int, int | None] = {2_048: None, 4_096: 400}
MIN_RECALL = 0.99
MAX_ANCHOR_BYTES = 90
TIMEOUT_S = 30.0  # of one call here: the machine may be busy, and a call that fails would end the run


def main() -> int:
    chosen = _parse()
    if chosen.bulk and chosen.servers > 1:
        raise SystemExit("--bulk writes to one server")
    record: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    parts = {"recall": _recall, "size": _size, "tenants": _tenants, "stale": _stale}
    for name in chosen.parts:
        with ExitStack() as running:
            count = chosen.servers if name == "size" else 1
            urls = [running.enter_context(start_valkey(chosen.memory)).url for _ in range(count)]
            directory, entries = (
                ValkeyDirectory(",".join(urls), TIMEOUT_S),
                [valkey.Valkey.from_url(url) for url in urls],
            )
            record[name], found = parts[name](chosen, directory, *entries)
            verdicts += found
        progress(f"{name}: done")
    show_verdicts(verdicts)
    record["verdicts"] = [verdict.as_record() for verdict in verdicts]
    path = write_results(chosen.name, record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, chosen.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet.directory", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["recall", "size", "tenants", "stale"], help="what to measure")
    parser.add_argument("--queries", type=int, default=20, help="per case and size")
    parser.add_argument("--donors", type=int, help="per size at most (default: all the text gives)")
    parser.add_argument(
        "--anchors", type=int, nargs="+", default=[1 << 20, 3 << 20], help="sizes to measure, ascending"
    )
    parser.add_argument("--servers", type=int, default=1, help="that share the entries, for size (default: 1)")
    parser.add_argument("--memory", default="4gb", help="that a server may use")
    parser.add_argument("--bulk", action="store_true", help="write the entries for size as raw commands, to one server")
    parser.add_argument("--look-ups", type=int, default=500, help="per size")
    parser.add_argument("--prompts", type=int, default=10_000, help="fuzzed prompts, and stale entries")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="fleet-directory", help="name of the file in results/")
    parser.add_argument("--enforce", action="store_true", help="fail if a target is missed")
    return parser.parse_args()


def _recall(chosen: argparse.Namespace, directory: ValkeyDirectory, entries: Any) -> tuple[object, list[Verdict]]:
    try:
        corpus, codec = load_corpus(chosen.texts), TokenizerCodec(TOKENIZER)
    except CorpusUnavailableError as unavailable:
        raise SystemExit(str(unavailable)) from None
    sizes = {size: chosen.donors or most for size, most in SIZES.items()}
    library = build_library(corpus, codec, sizes, chosen.seed)
    keys = SpaceKeys.derive(bytes(range(32)), "recall")
    spread = SpreadPlanner(directory, keys, library, PLANNERS)
    single = open_planner()
    for donor_id, tokens in spread.donors.items():
        single.register(donor_id, tokens, ALPHA)
    progress(f"{len(spread.donors):,} donors over {PLANNERS} planners, {int(entries.dbsize()):,} entries")
    scores = {
        name: judged(planner, spread, library, codec, chosen) for name, planner in (("four", spread), ("one", single))
    }
    rows = [_row(four, one) for four, one in zip(scores["four"], scores["one"], strict=True)]
    columns = ("case", "size", "n", "oracle tokens", "planned, four planners", "planned, one", "wrong tokens")
    show_table(f"Directory recall, {len(spread.donors):,} real donors over {PLANNERS} planners", columns, rows)
    times = Spread.of(spread.suggest_ms)
    assert times is not None
    progress(f"suggestions: p50 {times.p50:.1f} ms, p99 {times.p99:.1f} ms, n {times.n}")
    found = scores["four"]
    share = sum(each.planned_oracle_tokens for each in found) / sum(each.oracle_tokens for each in found)
    cases = [each.token_share for each in found if each.case not in NEGATIVE_CASES and each.token_share is not None]
    verdicts = [
        Verdict("recall of the oracle's tokens, all cases", ">=", MIN_RECALL, share),
        Verdict("recall of the oracle's tokens, worst case", ">=", MIN_RECALL, min(cases)),
        Verdict("planned tokens that differ", "==", 0, sum(each.wrong_tokens for each in found), is_law=True),
        Verdict(
            "plans for unrelated prompts",
            "==",
            0,
            sum(each.plans for each in found if each.case in NEGATIVE_CASES),
            is_law=True,
        ),
    ]
    return {name: [score.as_record() for score in group] for name, group in scores.items()}, verdicts


def judged(
    planner: Any, spread: SpreadPlanner, library: Library, codec: Codec, chosen: argparse.Namespace
) -> list[CaseScore]:
    """The same recipients for every planner."""
    judge = Judge(planner, ALPHA, library.oracle, spread.donors)
    scores = []
    for size in library.by_size:
        maker = CaseMaker(library, codec, size, chosen.seed)
        for case in CASES:
            score = CaseScore(case, size)
            for _ in range(chosen.queries):
                judge.score(maker.make(case), score)
            scores.append(score)
    return scores


def _row(four: CaseScore, one: CaseScore) -> tuple[object, ...]:
    shares = (None if each.token_share is None else f"{each.token_share:.4f}" for each in (four, one))
    return (four.case, f"{four.size:,}", four.recipients, f"{four.oracle_tokens:,}", *shares, four.wrong_tokens)


def _size(chosen: argparse.Namespace, directory: ValkeyDirectory, *entries: Any) -> tuple[object, list[Verdict]]:
    readings = grow(directory, entries, chosen.anchors, chosen.look_ups, chosen.seed, is_bulk=chosen.bulk)
    columns = ("anchors", "bytes per anchor", "announced per s", "look-up of 242, p50 ms", "p99 ms", "server us")
    show_table("Size of the directory in Valkey", columns, [_size_row(each) for each in readings])
    slope = None
    if len(readings) > 1:
        first, last = readings[0], readings[-1]
        grown = last.anchors * last.bytes_per_anchor - first.anchors * first.bytes_per_anchor
        slope = grown / (last.anchors - first.anchors)
        progress(f"slope from {first.anchors:,} to {last.anchors:,} anchors: {slope:.1f} bytes per anchor")
    verdicts = [
        Verdict("bytes per anchor, worst", "<=", MAX_ANCHOR_BYTES, max(each.bytes_per_anchor for each in readings)),
        Verdict("bytes per anchor, slope", "<=", MAX_ANCHOR_BYTES, slope),
    ]
    return [each.as_record() for each in readings], verdicts


def _size_row(reading: SizeReading) -> tuple[object, ...]:
    times = (f"{value:.2f}" for value in (reading.look_up_p50_ms, reading.look_up_p99_ms))
    rate = f"{reading.announced_per_s:,.0f}"
    return (f"{reading.anchors:,}", f"{reading.bytes_per_anchor:.1f}", rate, *times, f"{reading.server_us:.0f}")


def _tenants(chosen: argparse.Namespace, directory: ValkeyDirectory, entries: Any) -> tuple[object, list[Verdict]]:
    verdicts = tenant_verdicts(directory, entries, chosen.prompts, chosen.seed)
    return [verdict.as_record() for verdict in verdicts], verdicts


def _stale(chosen: argparse.Namespace, directory: ValkeyDirectory, _entries: Any) -> tuple[object, list[Verdict]]:
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        verdicts = stale_verdicts(directory, Path(folder), chosen.prompts, chosen.seed)
    return [verdict.as_record() for verdict in verdicts], verdicts


if __name__ == "__main__":
    raise SystemExit(main())
