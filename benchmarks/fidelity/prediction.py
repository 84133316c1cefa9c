"""Predicted against measured KL: rows of the laboratory in, held-out figures and a picture out.

``python -m benchmarks.fidelity.prediction NAME ...``: a law per class is fitted on every other item and evaluated on
the rest, both halves once, next to an oracle that knows every item's KL.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from benchmarks.console import RESULTS, progress, show_table
from benchmarks.fidelity.figures import FLOOR, Row, read_rows
from benchmarks.guard.held_out import CEILING, folds
from benchmarks.guard.picture import draw
from semblend.calibrate.observations import Observation
from semblend.contract import PlanShape

STATISTICS = {"its answer": "answer_kl", "a given text": "kl"}
NOTHING_CHOSEN = "first@0"
_COLUMNS = (
    *("KL along", "held out", "rank corr.", "<= predicted", "served", "mean KL served", "served over", "oracle"),
)


def observations(rows: Sequence[Row], policy: str, statistic: str) -> list[Observation]:
    """One policy at every budget that was run, and without recomputation."""
    found = []
    for row in rows:
        name, _, share = row["arm"].partition("@")
        if "risk" not in row or not (row["arm"] == NOTHING_CHOSEN or name == policy):
            continue
        kl = float(np.mean(row[statistic]))
        found.append(Observation(row["item"], PlanShape(row["shape"]), min(1.0, row["risk"]), float(share), kl))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.prediction", description=__doc__)
    parser.add_argument("names", nargs="+", help="runs whose rows are read together")
    parser.add_argument("--policy", default="question_or_deviation")
    arguments = parser.parse_args()
    rows = read_rows(RESULTS / f"{name}-rows.jsonl" for name in arguments.names)
    table: list[tuple[object, ...]] = []
    for label, statistic in STATISTICS.items():
        floor = float(np.mean([np.mean(row[statistic]) for row in rows if row["arm"] == FLOOR]))
        seen = observations(rows, arguments.policy, statistic)
        dots: list[tuple[PlanShape, float, float]] = []
        for fold in folds(seen, [row["item"] for row in rows], floor, label):
            held = fold.held
            table.append(
                (
                    label,
                    f"{held.items} items, fold {fold.number}",
                    None if held.rank_correlation is None else f"{held.rank_correlation:.2f}",
                    f"{held.covered} of {held.observations}",
                    f"{held.served} of {held.items}",
                    None if held.served_mean_kl is None else f"{held.served_mean_kl:.4f}",
                    f"{held.served_over_ceiling} of {held.served}",
                    f"{held.oracle_served} of {held.items}",
                )
            )
            dots += fold.dots
        path = RESULTS / f"{arguments.names[0]}-prediction-{statistic}.png"
        if draw(dots, CEILING, path):
            progress(f"drawn: {path.name} in {RESULTS.name}/")
    show_table(f"predicted by class, risk and budget of {arguments.policy}; ceiling {CEILING}", _COLUMNS, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
