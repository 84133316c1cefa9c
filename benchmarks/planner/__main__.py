"""Planner speed and size, compared with ``semblend==0.3.25`` and LMCache's matcher in one run.

Rivals are installed once into ``.engines/rivals/`` and run in their own processes. A target that is not reached is
printed as such; the exit code is 1 only when a law is broken, or with ``--enforce`` when a target is missed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.console import exit_code, progress, show_verdicts, write_results
from benchmarks.corpus import CorpusUnavailableError, load_corpus
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.planner import report
from benchmarks.planner.plan_of_run import RunOptions, scenarios
from benchmarks.planner.real_rows import real_rows
from benchmarks.planner.scenario import NOT_RUN, OURS, Measured, Scenario, measure
from benchmarks.planner.tokens import FileSource

SUBJECTS = ("ours", "lmcache", "semblend")
SIZES = (1_000, 10_000, 50_000, 1_000_000)
BYTES_NEEDED_PER_DONOR = 15_000


def main() -> int:
    arguments = _parse()
    options = _options(arguments)
    results = _earlier(arguments.rivals_from)
    for scenario in scenarios(options):
        lacking = _lacking_memory(scenario)
        results.append(Measured(scenario, failure=lacking) if lacking else measure(scenario))
        write_results(arguments.name, _record(arguments, results))
    report.show_stores(results)
    report.show_lookups(results)
    compared = report.ratios(results)
    report.show_ratios(compared)
    verdicts = report.verdicts(results)
    show_verdicts(verdicts)
    record = _record(arguments, results)
    path = write_results(
        arguments.name, {**record, "ratios": compared, "verdicts": [verdict.as_record() for verdict in verdicts]}
    )
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; only ours unless --subjects is given")
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, help="subjects to measure (default: all)")
    parser.add_argument("--sizes", nargs="+", type=int, help=f"donors (default: {' '.join(map(str, SIZES))})")
    parser.add_argument("--fill-limit-s", type=float, default=150.0, help="time limit for a rival to fill a store")
    parser.add_argument("--block-limit-s", type=float, default=25.0, help="time limit for a rival's row of look-ups")
    parser.add_argument("--rivals-from", type=Path, nargs="+", default=[], help="files of earlier runs")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--no-real", action="store_true", help="skip the real texts")
    parser.add_argument("--name", default="planner", help="name of the file in results/")
    return parser.parse_args()


def _options(arguments: argparse.Namespace) -> RunOptions:
    quick: bool = arguments.quick
    real_path, real_donors = (None, 0) if arguments.no_real or quick else _real(arguments.texts)
    return RunOptions(
        quick=quick,
        sizes=tuple(arguments.sizes or ((300, 1_000) if quick else SIZES)),
        subjects=tuple(arguments.subjects or (("ours",) if quick else SUBJECTS)),
        fill_limit_s=arguments.fill_limit_s,
        block_limit_s=arguments.block_limit_s,
        seed=arguments.seed,
        real_path=real_path,
        real_donors=real_donors,
    )


def _earlier(paths: list[Path]) -> list[Measured]:
    """The rivals of an earlier run. They are older figures, and each keeps the time and load it was measured under."""
    records = [record for path in paths for record in json.loads(path.read_text())["results"]]
    earlier = [Measured.from_record(record) for record in records]
    return [measured for measured in earlier if measured.blocks and not measured.scenario.subject.startswith(OURS)]


def _real(texts: Path) -> tuple[Path | None, int]:
    try:
        path = real_rows(load_corpus(texts))
    except CorpusUnavailableError as unavailable:
        progress(f"real texts skipped: {unavailable}")
        return None, 0
    return path, FileSource(path).size


def _lacking_memory(scenario: Scenario) -> str:
    """Skip a store that would not fit into memory instead of swapping."""
    with open("/proc/meminfo") as meminfo:
        available = next(int(line.split()[1]) * 1024 for line in meminfo if line.startswith("MemAvailable:"))
    needed = scenario.donors * BYTES_NEEDED_PER_DONOR
    if needed <= available:
        return ""
    return f"{NOT_RUN}: needs about {needed / 1e9:.1f} GB, {available / 1e9:.1f} GB available"


def _record(arguments: argparse.Namespace, results: list[Measured]) -> dict[str, object]:
    return {"quick": arguments.quick, "seed": arguments.seed, "results": [result.as_record() for result in results]}


if __name__ == "__main__":
    raise SystemExit(main())
