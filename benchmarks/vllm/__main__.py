"""Reuse on a real vLLM server: TTFT compared with cold prefill and the exact cache, and how close the answers are.

Prompts go as token ids, so lengths are exact and tokenization costs nothing. Every item passes all arms in a row;
cells are visited in rounds, so that a slow minute hits all of them. A row whose reuse the backend did not confirm
counts as declined and is shown as such. Each model is measured with the default gates first and then, on another
server, with open ones; every ratio is of one item on one server.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from scripts.engines.specs import count_cores, vllm_missing
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import console, exit_code, progress, show_verdicts
from benchmarks.corpus import CorpusUnavailableError
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.targets import Verdict
from benchmarks.vllm import overhead, own_time, soak
from benchmarks.vllm.arms import Row, measure
from benchmarks.vllm.report import (
    SPEEDUPS,
    Cell,
    cells_of,
    quality_verdicts,
    recompute_verdicts,
    show_quality,
    show_settings,
    show_speed,
    speed_verdicts,
)
from benchmarks.vllm.run import GATES, Run
from benchmarks.vllm.servers import CORES, Subject, stock, with_connector
from benchmarks.vllm.texts import Texts, read_texts
from benchmarks.vllm.workload import CASES, SIZES, Item, Workload

FLOOR_ITEMS = 3
SOAK_HOST_BYTES = 8 << 30


def main() -> int:
    arguments = _parse()
    results: dict[tuple[str, str], list[Cell]] = {}
    verdicts: list[Verdict] = []
    measured = 0
    for model in (MODELS[name] for name in arguments.model):
        missing = vllm_missing(model)
        if missing is not None:
            progress(f"{model.title} not measured: {missing}")
            continue
        try:
            codec = TokenizerCodec(model.tokenizer)
            texts = read_texts(arguments.texts, codec, model.tokenizer)
        except (CorpusUnavailableError, ImportError) as unavailable:
            progress(f"nothing measured: {unavailable} (make models; --texts FOLDER)")
            return 3
        workload = Workload(texts, codec, arguments.seed, model.first_token)
        for gates in arguments.gates:
            run = Run(model, gates, arguments, texts.digest)
            verdicts += _measure(run, workload, texts, codec, results)
            measured += 1
    if len(results) > 1:
        show_settings(results)
    return exit_code(verdicts, arguments.enforce) if measured else 3


def _measure(
    run: Run, workload: Workload, texts: Texts, codec: TokenizerCodec, results: dict[tuple[str, str], list[Cell]]
) -> list[Verdict]:
    arguments = run.arguments
    if arguments.soak:
        record, verdicts = _soak(run, texts, codec)
    elif arguments.own_time:
        record, verdicts = _own_time(run, workload)
    else:
        cells, record, verdicts = _cells(run, workload)
        results[run.model.name, run.gates] = cells
    show_verdicts(verdicts)
    record["arguments"] = {name: str(value) for name, value in vars(arguments).items()}
    record["verdicts"] = [verdict.as_record() for verdict in verdicts]
    path = run.write(record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return verdicts


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm", description=__doc__)
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=[SMOLLM2.name], help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="only 1K, three items, for CI")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), help="prompt sizes (default: all)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="default: all")
    parser.add_argument("--n", type=int, help="items per cell (default 9; 3 with --quick)")
    parser.add_argument(
        "--gates", nargs="+", choices=GATES, help="open: serve everything that is found (default: default, then open)"
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
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run of the same settings")
    parser.add_argument("--name", default="vllm", help="name of the files in results/, before model and gates")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.sizes = arguments.sizes or (["1K"] if quick else list(SIZES))
    arguments.n = arguments.n or (3 if quick else 9)
    arguments.overhead_sizes = arguments.overhead_sizes or (["1K"] if quick else ["2K", "4K"])
    arguments.overhead_n = arguments.overhead_n or (3 if quick else 15)
    alone = arguments.stock or arguments.recompute_everything or arguments.own_time or arguments.soak
    arguments.gates = arguments.gates or (["open"] if alone else list(GATES))
    if arguments.overhead is None:  # a few items say nothing about percents
        arguments.overhead = not (quick or arguments.stock or arguments.recompute_everything)
    return arguments


def _cells(run: Run, workload: Workload) -> tuple[list[Cell], dict[str, Any], list[Verdict]]:
    arguments = run.arguments
    rows, faults, costs = run.earlier_rows(), 0, []
    items = [
        workload.make(size, case, number)
        for number in range(arguments.n)
        for size in arguments.sizes
        for case in arguments.cases
    ]
    done = {(row.size, row.case, row.number) for row in rows}
    left = [item for item in items if (item.size, item.case, item.number) not in done]
    if done:
        progress(f"{run.name}: {len(done)} rows of an earlier run, {len(left)} items left")
    with_overhead = arguments.overhead and run.gates == arguments.gates[-1]
    if left or with_overhead:
        with _subject(run) as subject:
            _measure_all(run, left, rows, subject)
            faults = 0 if subject.happenings is None else subject.happenings.faults
            costs = _overhead(run, workload, subject) if with_overhead else []
    cells = cells_of(rows)
    progress(f"{run.model.title}, {'no connector' if arguments.stock else f'{run.gates} gates'}:")
    show_speed(cells)
    if arguments.quality:
        show_quality(cells)
    for row in rows:
        for note in row.notes:
            progress(f"{row.size} {row.case} #{row.number}: {note}")
    _warn_of_load(rows)
    verdicts = []
    if arguments.recompute_everything:
        verdicts += recompute_verdicts(cells)
    elif not arguments.stock:
        verdicts += speed_verdicts(cells, SPEEDUPS if run.model is SMOLLM2 else {})
        if arguments.quality:
            verdicts += quality_verdicts(cells, default_gates=run.gates == "default")
        verdicts.append(Verdict("faults contained by the connector", "==", 0, faults))
    if costs:
        overhead.show(costs)
        verdicts += overhead.verdicts(costs)
    return cells, {"rows": [row.as_record() for row in rows], "overhead": overhead.as_record(costs)}, verdicts


def _warn_of_load(rows: Sequence[Row]) -> None:
    """The server's own threads make a load of about its cores; more than that comes from other processes."""
    load, cores = median(row.load_average for row in rows), count_cores(CORES)
    if load > cores + 1:
        progress(f"the machine was shared: median load {load:.1f} on {cores} cores, so do not quote these times")


def _measure_all(run: Run, items: Sequence[Item], rows: list[Row], subject: Subject) -> None:
    """Adds to ``rows``; they are written after every item, so an interrupted run keeps them."""
    with _bar(len(items)) as step:
        for item in items:
            rows.append(measure(item, subject, score=run.arguments.quality, floor=item.number < FLOOR_ITEMS))
            run.write({"unfinished": True, "rows": [row.as_record() for row in rows]})
            step(item.name)


def _overhead(run: Run, workload: Workload, subject: Subject) -> list[overhead.Costs]:
    """Uses the server that was just measured, whose store is filled by now."""
    arguments = run.arguments
    with stock(run.model) as bare:
        return overhead.Overhead(subject, bare, workload).run(arguments.overhead_sizes, arguments.overhead_n)


def _own_time(run: Run, workload: Workload) -> tuple[dict[str, Any], list[Verdict]]:
    arguments = run.arguments
    connector = "benchmarks.vllm.accounted_connector:AccountedConnector"
    with with_connector(run.options, run.events, connector, run.model) as subject:
        rows = own_time.run(subject, workload, arguments.overhead_sizes, arguments.overhead_n, run.events)
    own_time.show(rows)
    return {"own_time": own_time.as_record(rows)}, own_time.verdicts(rows)


def _soak(run: Run, texts: Texts, codec: TokenizerCodec) -> tuple[dict[str, Any], list[Verdict]]:
    asked = soak.prompts(texts.questions, codec, run.arguments.queries, run.arguments.seed)
    options = {"host_bytes": SOAK_HOST_BYTES, **run.options}
    with with_connector(options, run.events, model=run.model) as subject:
        queries = soak.run(subject, asked, run.arguments.utilisation)
    soak.show(queries)
    return {"soak": soak.as_record(queries)}, soak.verdicts(queries)


@contextmanager
def _subject(run: Run) -> Iterator[Subject]:
    if run.arguments.stock:
        with stock(run.model) as subject:
            yield subject
    else:
        with with_connector(run.options, run.events, model=run.model) as subject:
            yield subject


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; elsewhere every item is logged as a line."""
    shown = console()
    if not shown.is_terminal:
        numbers = itertools.count(1)
        yield lambda name: progress(f"{name} done, {next(numbers)} of {total}")
        return
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=shown) as bar:
        task = bar.add_task("items", total=total)
        yield lambda name: bar.update(task, advance=1, description=name)


if __name__ == "__main__":
    raise SystemExit(main())
