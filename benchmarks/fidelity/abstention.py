"""Rows of a run in; out: does anything known before the first token predict how far the answer is from cold?

``python -m benchmarks.fidelity.abstention NAME ... --arm ARM``: rank correlation of each sign with the KL to cold, and
the fraction of items served when the mean KL of served items must stay below a ceiling, with limits set on other items.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.console import RESULTS, show_table
from benchmarks.fidelity.figures import Row, read_rows
from semblend.calibrate import fit

SIGNS = ("moved_question", "moved_first", "context_share")
CEILING = 0.02
SPLITS = 200


@dataclass(frozen=True, slots=True)
class Gate:
    """``served`` of ``items`` by limits set on the other half, ``oracle`` if KL were known; ``kl`` is the mean of
    served items.
    """

    items: int
    rank_correlation: float
    served: float
    kl: float | None
    oracle: float


def judge(sign: NDArray[np.float64], kl: NDArray[np.float64], ceiling: float = CEILING, seed: int = 1) -> Gate:
    """New random halves in each round: a limit set on one half is applied to the other."""
    random = np.random.default_rng(seed)
    served, spent = 0, 0.0
    for _ in range(SPLITS):
        order = random.permutation(len(kl))
        known, fresh = order[: len(kl) // 2], order[len(kl) // 2 :]
        taken = fresh[sign[fresh] <= limit_of(sign[known], kl[known], ceiling)]
        served += len(taken)
        spent += float(kl[taken].sum())
    total = SPLITS * (len(kl) - len(kl) // 2)
    return Gate(
        len(kl),
        rank_correlation(sign, kl),
        served / total,
        spent / served if served else None,
        max_served(kl, ceiling) / len(kl),
    )


def limit_of(sign: NDArray[np.float64], kl: NDArray[np.float64], ceiling: float) -> float:
    """The largest sign up to which the mean KL stays below the ceiling; minus infinity if there is none."""
    order = np.argsort(sign, kind="stable")
    means = np.cumsum(kl[order]) / np.arange(1, len(kl) + 1)
    is_last = np.append(np.diff(sign[order]) > 0, True)  # equal signs are served together or not at all
    within = np.flatnonzero((means <= ceiling) & is_last)
    return float(sign[order[within[-1]]]) if len(within) else -np.inf


def max_served(kl: NDArray[np.float64], ceiling: float) -> int:
    means = np.cumsum(np.sort(kl)) / np.arange(1, len(kl) + 1)
    return int((means <= ceiling).sum())


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's, ties at their mean rank; 0 where it is not defined."""
    return fit.rank_correlation(one.tolist(), other.tolist()) or 0.0


def lines_of(rows: Sequence[Row], arm: str) -> list[tuple[object, ...]]:
    mine = [row for row in rows if row["arm"] == arm and "kl" in row]
    cases = [*dict.fromkeys(row["case"] for row in mine), "all"]
    lines: list[tuple[object, ...]] = []
    for case in cases:
        group = [row for row in mine if case in (row["case"], "all")]
        kl = np.array([np.mean(row["kl"]) for row in group])
        for sign in SIGNS:
            if len(group) < 4 or any(sign not in row for row in group):
                continue
            gate = judge(np.array([row[sign] for row in group]), kl)
            shown = None if gate.kl is None else f"{gate.kl:.4f}"
            correlation, served, oracle = f"{gate.rank_correlation:.2f}", f"{gate.served:.0%}", f"{gate.oracle:.0%}"
            lines.append((case, sign, gate.items, f"{kl.mean():.4f}", correlation, served, shown, oracle))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.abstention", description=__doc__)
    parser.add_argument("names", nargs="+", help="runs whose rows are read together")
    parser.add_argument("--arm", default="question_by_deviation@0.15")
    arguments = parser.parse_args()
    rows = read_rows(RESULTS / f"{name}-rows.jsonl" for name in arguments.names)
    columns = ("case", "sign", "items", "KL of all", "rank correlation", "served", "KL of the served", "oracle")
    show_table(f"{arguments.arm}, ceiling {CEILING}", columns, lines_of(rows, arguments.arm))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
