"""Reuse on a real vLLM server: TTFT compared with cold prefill and the exact cache, and how close the answers are.

Prompts go as token ids, so lengths are exact and tokenization costs nothing. Every item passes all arms in a row;
cells are visited in rounds, so that a slow minute hits all of them. A row whose reuse the backend did not confirm
counts as declined and is shown as such.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from scripts.engines.specs import count_cores, vllm_missing

from benchmarks.console import RESULTS, console, exit_code, progress, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER, CorpusUnavailableError
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.targets import Verdict
from benchmarks.vllm import overhead, own_time, soak
from benchmarks.vllm.arms import Row, measure
from benchmarks.vllm.picture import draw
from benchmarks.vllm.report import (
    cells_of,
    quality_verdicts,
    recompute_verdicts,
    show_quality,
    show_speed,
    speed_verdicts,
)
from benchmarks.vllm.servers import CORES, OPEN_GATES, Subject, stock, with_connector
from benchmarks.vllm.texts import Texts, read_texts
from benchmarks.vllm.workload import CASES, SIZES, Workload

FLOOR_ITEMS = 3
SOAK_HOST_BYTES = 8 << 30


def main() -> int:
    arguments = _parse()
    missing = vllm_missing()
    if missing is not None:
        progress(f"nothing measured: {missing}")
        return 3
    try:
        codec = TokenizerCodec(TOKENIZER)
        texts = read_texts(arguments.texts, codec)
    except (CorpusUnavailableError, ImportError) as unavailable:
        progress(f"nothing measured: {unavailable} (make models; --texts FOLDER)")
        return 3
    if arguments.soak:
        record, verdicts = _soak(arguments, texts, codec)
    elif arguments.own_time:
        record, verdicts = _own_time(arguments, Workload(texts, codec, arguments.seed))
    else:
        record, verdicts = _cells(arguments, Workload(texts, codec, arguments.seed))
    show_verdicts(verdicts)
    record |= {"arguments": {name: str(value) for name, value in vars(arguments).items()}, "texts": texts.digest}
    record["verdicts"] = [verdict.as_record() for verdict in verdicts]
    path = write_results(arguments.name, record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only 1K, three items, for CI")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), help="prompt sizes (default: all)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="default: all")
    parser.add_argument("--n", type=int, help="items per cell (default 9; 3 with --quick)")
    parser.add_argument(
        "--gates", choices=("open", "default"), default="open", help="open: serve everything that is found"
    )
    parser.add_argument("--option", action="append", default=[], metavar="KEY=JSON", help="extra connector option")
    parser.add_argument("--stock", action="store_true", help="no connector: only cold, exact cache and noise floor")
    parser.add_argument("--no-quality", dest="quality", action="store_false", help="only times")
    parser.add_argument("--recompute-everything", action="store_true", help="load nothing: must equal cold prefill")
    parser.add_argument(
        "--overhead",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="measure the cost of a miss and a capture",
    )
    parser.add_argument("--overhead-sizes", nargs="+", choices=list(SIZES), help="default: 2K and 4K")
    parser.add_argument("--overhead-n", type=int, help="items per size (default 15; 3 with --quick)")
    parser.add_argument("--own-time", action="store_true", help="time our own code instead of cells")
    parser.add_argument("--soak", action="store_true", help="150 novel retrieval queries instead of cells")
    parser.add_argument("--queries", type=int, default=soak.QUERIES, help="length of the soak")
    parser.add_argument(
        "--utilisation",
        type=float,
        default=0.5,
        help="fraction of the soak's time with a request in flight (1: no pauses)",
    )
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    parser.add_argument("--name", default="vllm", help="name of the files in results/")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.sizes = arguments.sizes or (["1K"] if quick else list(SIZES))
    arguments.n = arguments.n or (3 if quick else 9)
    arguments.overhead_sizes = arguments.overhead_sizes or (["1K"] if quick else ["2K", "4K"])
    arguments.overhead_n = arguments.overhead_n or (3 if quick else 15)
    if arguments.overhead is None:  # a few items say nothing about percents
        arguments.overhead = not (quick or arguments.stock or arguments.recompute_everything)
    return arguments


def _cells(arguments: argparse.Namespace, workload: Workload) -> tuple[dict[str, Any], list[Verdict]]:
    with _subject(arguments) as subject:
        rows = _measure_all(arguments, workload, subject)
        faults = 0 if subject.happenings is None else subject.happenings.faults
        costs = _overhead(arguments, workload, subject) if arguments.overhead else []
    cells = cells_of(rows)
    show_speed(cells)
    if arguments.quality:
        show_quality(cells)
    for row in rows:
        for note in row.notes:
            progress(f"{row.size} {row.case} #{row.number}: {note}")
    _warn_of_load(rows)
    if draw(cells, RESULTS / f"{arguments.name}.png"):
        progress(f"drawn: {arguments.name}.png in {RESULTS.name}/")
    verdicts = []
    if arguments.recompute_everything:
        verdicts += recompute_verdicts(cells)
    elif not arguments.stock:
        verdicts += speed_verdicts(cells)
        if arguments.quality:
            verdicts += quality_verdicts(cells, default_gates=arguments.gates == "default")
        verdicts.append(Verdict("faults contained by the connector", "==", 0, faults))
    if costs:
        overhead.show(costs)
        verdicts += overhead.verdicts(costs)
    return {"rows": [row.as_record() for row in rows], "overhead": overhead.as_record(costs)}, verdicts


def _warn_of_load(rows: Sequence[Row]) -> None:
    """The server's own threads make a load of about its cores; more than that comes from other processes."""
    load, cores = median(row.load_average for row in rows), count_cores(CORES)
    if load > cores + 1:
        progress(f"the machine was shared: median load {load:.1f} on {cores} cores, so do not quote these times")


def _measure_all(arguments: argparse.Namespace, workload: Workload, subject: Subject) -> list[Row]:
    """Results are written after every round, so an interrupted run keeps them."""
    rows: list[Row] = []
    with _bar(arguments.n * len(arguments.sizes) * len(arguments.cases)) as step:
        for number in range(arguments.n):
            for size in arguments.sizes:
                for case in arguments.cases:
                    item = workload.make(size, case, number)
                    rows.append(measure(item, subject, score=arguments.quality, floor=number < FLOOR_ITEMS))
                    step(item.name)
            write_results(arguments.name, {"unfinished": True, "rows": [row.as_record() for row in rows]})
            progress(f"round {number + 1} of {arguments.n} done")
    return rows


def _overhead(arguments: argparse.Namespace, workload: Workload, subject: Subject) -> list[overhead.Costs]:
    """Uses the server that was just measured, whose store is filled by now."""
    with stock() as bare:
        return overhead.Overhead(subject, bare, workload).run(arguments.overhead_sizes, arguments.overhead_n)


def _own_time(arguments: argparse.Namespace, workload: Workload) -> tuple[dict[str, Any], list[Verdict]]:
    events = RESULTS / f"{arguments.name}-own-time-events.jsonl"
    connector = "benchmarks.vllm.accounted_connector:AccountedConnector"
    with with_connector(_options(arguments), events, connector) as subject:
        rows = own_time.run(subject, workload, arguments.overhead_sizes, arguments.overhead_n, events)
    own_time.show(rows)
    return {"own_time": own_time.as_record(rows)}, own_time.verdicts(rows)


def _soak(arguments: argparse.Namespace, texts: Texts, codec: TokenizerCodec) -> tuple[dict[str, Any], list[Verdict]]:
    asked = soak.prompts(texts.questions, codec, arguments.queries, arguments.seed)
    options = {**OPEN_GATES, "host_bytes": SOAK_HOST_BYTES, **_options(arguments)}
    with with_connector(options, RESULTS / f"{arguments.name}-soak-events.jsonl") as subject:
        queries = soak.run(subject, asked, arguments.utilisation)
    soak.show(queries)
    return {"soak": soak.as_record(queries)}, soak.verdicts(queries)


@contextmanager
def _subject(arguments: argparse.Namespace) -> Iterator[Subject]:
    if arguments.stock:
        with stock() as subject:
            yield subject
    else:
        with with_connector(_options(arguments), RESULTS / f"{arguments.name}-events.jsonl") as subject:
            yield subject


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = dict(OPEN_GATES) if arguments.gates == "open" else {}
    if arguments.recompute_everything:
        options["recompute_all"] = True
    return options | dict(_pair(text) for text in arguments.option)


def _pair(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, json.loads(value)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; elsewhere the rounds are logged as lines."""
    shown = console()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=shown, disable=not shown.is_terminal) as bar:
        task = bar.add_task("items", total=total)
        yield lambda name: bar.update(task, advance=1, description=name)


if __name__ == "__main__":
    raise SystemExit(main())
