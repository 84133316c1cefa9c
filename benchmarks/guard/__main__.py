"""The guard on recorded distributions: ``record`` runs the engine, ``report`` reads and simulates.

Recorded: first-token lists and KL of every item and arm, on the real engine in process. Simulated: the traffic, which
draws items with replacement, the sampling at 5 % and the order of requests. Each printed figure is marked as one or the
other.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.console import RESULTS, write_results
from benchmarks.fidelity.engine_process import run_inside
from benchmarks.guard.detection import detection
from benchmarks.guard.rows import Row

ROWS = RESULTS / "guard-recorded.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("what", choices=("record", "report"))
    parser.add_argument("--each", type=int, default=12, help="items per case and source, when recording")
    parser.add_argument("--minutes", type=float, default=600.0, help="start no further item after this, when recording")
    parser.add_argument("--threads", type=int, default=2, help="threads of the engine, when recording")
    parser.add_argument("--more", action="store_true", help="keep existing rows and record what is missing")
    arguments = parser.parse_args()
    if arguments.what == "record" and (code := _record(arguments)) != 0:
        return code
    rows: list[Row] = [json.loads(line) for line in ROWS.read_text().splitlines()]
    write_results("guard", {"detection": detection(rows)})
    return 0


def _record(given: argparse.Namespace) -> int:
    RESULTS.mkdir(exist_ok=True)
    if not given.more:
        ROWS.unlink(missing_ok=True)
    asked = ["--out", str(ROWS), "--each", str(given.each), "--minutes", str(given.minutes)]
    return run_inside("benchmarks.guard.inside", asked, given.threads)


if __name__ == "__main__":
    raise SystemExit(main())
