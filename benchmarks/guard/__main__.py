"""The guard and the predicted KL on recorded distributions: ``record`` runs the engine, ``report`` reads and simulates.

Recorded: first-token lists and KL of every item and arm, on the real engine in process. Simulated: the traffic, which
draws items with replacement, the sampling at 5 % and the order of requests. Each printed figure is marked as one or the
other.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.console import RESULTS, progress, show_table, write_results
from benchmarks.fidelity.engine_process import run_inside
from benchmarks.guard.detection import detection
from benchmarks.guard.held_out import CEILING, QUANTILE, folds
from benchmarks.guard.picture import draw
from benchmarks.guard.rows import OF_ANSWER, OF_FIRST_TOKEN, OF_TEXT, Row, kl_of, observations
from semblend.contract import PlanShape

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
    write_results("guard", {"prediction": _prediction(rows), "detection": detection(rows)})
    return 0


def _record(given: argparse.Namespace) -> int:
    RESULTS.mkdir(exist_ok=True)
    if not given.more:
        ROWS.unlink(missing_ok=True)
    asked = ["--out", str(ROWS), "--each", str(given.each), "--minutes", str(given.minutes)]
    return run_inside("benchmarks.guard.inside", asked, given.threads)


def _prediction(rows: Sequence[Row]) -> list[dict[str, Any]]:
    table, kept = [], []
    for statistic in (OF_ANSWER, OF_TEXT, OF_FIRST_TOKEN):
        floor = statistics.fmean(kl_of(row, statistic) for row in rows if row["arm"] == "floor")
        dots: list[tuple[PlanShape, float, float]] = []
        for fold in folds(observations(rows, statistic), [row["item"] for row in rows], floor, statistic):
            held = fold.held
            table.append(
                (
                    statistic,
                    f"fold {fold.number}",
                    "-" if held.rank_correlation is None else f"{held.rank_correlation:.2f}",
                    f"{held.covered} of {held.observations}",
                    f"{held.served} of {held.items}",
                    f"{held.served_over_ceiling} of {held.served}",
                    f"{held.oracle_served} of {held.items}",
                    " ".join(sorted(fold.law.laws)),
                )
            )
            dots += fold.dots
            named = {name: getattr(held, name) for name in _HELD}
            kept.append({"statistic": statistic, "fold": fold.number, "floor": floor, **named})
        if statistic == OF_ANSWER and draw(dots, CEILING, RESULTS / "guard.png"):
            progress(f"drawn: guard.png in {RESULTS.name}/")
    columns = ("KL", "held out", "rank corr.", "<= predicted", "served", "served over", "oracle", "laws")
    show_table(f"predicted KL on held-out items, ceiling {CEILING}, quantile {QUANTILE} (recorded)", columns, table)
    return kept


_HELD = (*("observations", "rank_correlation", "covered", "served", "served_over_ceiling", "oracle_served", "items"),)


if __name__ == "__main__":
    raise SystemExit(main())
