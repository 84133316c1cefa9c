"""Reuse on a real SGLang server: TTFT cold, on an exact radix hit and with our radix backend, and fidelity.

One server, the rectangular attention on in all arms; every item passes all arms in a row and sizes are visited in
rounds, so that a slow minute hits all of them. A row whose reuse the backend did not confirm counts as declined.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

from scripts.engines.specs import EngineOptions, sglang_missing, sglang_spec

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER, CorpusUnavailableError, load_corpus
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.equal_threads import launch
from benchmarks.sglang.arms import Row, measure
from benchmarks.sglang.workload import SIZES, Workload
from benchmarks.targets import Verdict

LONG_SOURCES = frozenset(
    {"natural_question", "legal_contract_qa", "coursera", "quality", "financial_qa", "multidoc_qa"}
)


def main() -> int:
    arguments = _parse()
    missing = sglang_missing()
    if missing is not None:
        progress(f"nothing measured: {missing}")
        return 3
    try:
        codec = TokenizerCodec(TOKENIZER)
        corpus = load_corpus(arguments.texts)
    except (CorpusUnavailableError, ImportError) as unavailable:
        progress(f"nothing measured: {unavailable} (make models; --texts FOLDER)")
        return 3
    documents = tuple(tuple(d.tokens.tolist()) for d in corpus.documents if d.source in LONG_SOURCES)
    workload = Workload(documents, lambda text: codec.encode(text).tolist(), arguments.seed)
    rows = _run(arguments, workload)
    _show(rows)
    verdicts = _verdicts(rows)
    show_verdicts(verdicts)
    record = {
        "rows": [row.as_record() for row in rows],
        "verdicts": [verdict.as_record() for verdict in verdicts],
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "texts": corpus.digest,
    }
    progress(f"written: {write_results(arguments.name, record).name} in {RESULTS.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sglang", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), help="default: all")
    parser.add_argument("--n", type=int, default=3, help="items per size (default: 3)")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=JSON", help="option of the radix backend")
    parser.add_argument("--cores", default="0", help="cores of the server (default: 0)")
    parser.add_argument("--url", help="URL of a running server to use")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    parser.add_argument("--name", default="sglang", help="name of the file in results/")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, workload: Workload) -> list[Row]:
    if arguments.url is not None:
        return _rounds(arguments, workload, arguments.url)
    options = {key: json.loads(value) for key, _, value in (text.partition("=") for text in arguments.option)}
    extra = ("--page-size", str(arguments.page_size))
    spec = sglang_spec(EngineOptions(cores=arguments.cores, extra=extra, startup_timeout_s=900.0), semblend=options)
    with launch(spec) as server:
        progress(f"server ready after {server.startup_s:.0f} s, log in {server.log_path.name}")
        return _rounds(arguments, workload, server.base_url)


def _rounds(arguments: argparse.Namespace, workload: Workload, base_url: str) -> list[Row]:
    rows = []
    for number in range(arguments.n):
        for size in arguments.sizes:
            row = measure(workload.make(size, number), base_url)
            rows.append(row)
            progress(
                f"{size} #{number}: cold {row.cold_s:.2f} s, exact {row.exact_s:.2f} s, ours {row.ours_s:.2f} s, "
                f"reused {row.reused_tokens}, computed {row.computed_tokens}, PPL ratio {_shown(row.ppl_ratio)}"
            )
        write_results(arguments.name, {"unfinished": True, "rows": [row.as_record() for row in rows]})
    return rows


def _show(rows: list[Row]) -> None:
    lines = []
    for size in dict.fromkeys(row.size for row in rows):
        own = [row for row in rows if row.size == size]
        served = [row for row in own if row.reused_tokens]
        ratios = [row.ppl_ratio for row in served if row.ppl_ratio is not None]
        lines.append(
            (
                size,
                f"{len(served)} of {len(own)}",
                _shown(_middle([row.cold_s for row in own])),
                _shown(_middle([row.exact_s for row in own])),
                _shown(_middle([row.ours_s for row in served])),
                _shown(_middle([row.cold_s / row.ours_s for row in served])),
                _shown(_middle([row.ours_s / row.exact_s for row in served])),
                _shown(_middle([row.reused_tokens / row.prompt_tokens for row in served])),
                f"{_shown(_middle(ratios))} [{_shown(min(ratios, default=None))}, {_shown(max(ratios, default=None))}]",
                _shown(_middle([row.first_kl for row in served])),
                _shown(_middle([float(row.agreed_tokens) for row in served])),
            )
        )
    show_table(
        "TTFT in s (medians) and fidelity of blended rows, same document, new instruction",
        (
            *("size", "served", "cold", "exact", "ours", "cold/ours", "ours/exact", "reused fraction"),
            *("PPL ratio [range]", "first-token KL", "agreed of 16"),
        ),
        lines,
    )


def _verdicts(rows: list[Row]) -> list[Verdict]:
    verdicts = [Verdict("rows served with confirmed reuse", "==", len(rows), sum(bool(r.reused_tokens) for r in rows))]
    at_3k = [row for row in rows if row.size == "3K" and row.reused_tokens]
    if at_3k:
        verdicts += [
            Verdict("3K: cold over ours", ">=", 10.0, _middle([row.cold_s / row.ours_s for row in at_3k])),
            Verdict("3K: ours over exact hit", "<=", 2.5, _middle([row.ours_s / row.exact_s for row in at_3k])),
        ]
    ratios = [row.ppl_ratio for row in rows if row.ppl_ratio is not None]
    if ratios:
        verdicts.append(Verdict("PPL ratio, distance of its median from 1", "<=", 0.02, abs(median(ratios) - 1.0)))
    return verdicts


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    raise SystemExit(main())
