"""Recorded rows read back: runs, KL by either statistic, observations of the sound arms. For both reports."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.guard.arms import SOUND
from semblend.calibrate.observations import Observation
from semblend.contract import ContextRisk, PlanShape, Run, risk_of_runs, shape_of
from semblend.guard.divergence import kl_lower_bound
from semblend.guard.pair import Answer, divergence

OF_ANSWER = "16 tokens of its answer, 20 likeliest"
OF_TEXT = "16 positions of a given text, whole vocabulary"
OF_FIRST_TOKEN = "first token, 20 likeliest"
Row = dict[str, Any]


def drop_torn(path: Path) -> set[str]:
    """Items that are complete. The last one may be incomplete, even within a line: its rows are removed."""
    text = path.read_text() if path.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    whole = [row for row in rows if row["item"] != rows[-1]["item"]]
    if text:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in whole))
    return {row["item"] for row in whole}


def plan_of(row: Row) -> tuple[PlanShape, float]:
    """Class and context risk of what was loaded."""
    runs = [
        Run(str(donor), donor_start, start, length, ContextRisk(preceding, differing, share))
        for donor, donor_start, start, length, preceding, differing, share in row["runs"]
    ]
    return shape_of(runs), min(1.0, risk_of_runs(runs))


def kl_of(row: Row, statistic: str) -> float:
    if statistic == OF_TEXT:
        return statistics.fmean(row["kl"])
    cold, other = (
        Answer("m", tuple({str(int(token)): value for token, value in each} for each in row[name]), None)
        for name in ("cold_top", "top")
    )
    return kl_lower_bound(cold.tokens[0], other.tokens[0]) if statistic == OF_FIRST_TOKEN else divergence(cold, other)


def observations(rows: Sequence[Row], statistic: str) -> list[Observation]:
    found = []
    for row in rows:
        arm, _, share = row["arm"].partition("@")
        if arm == SOUND:
            found.append(Observation(row["item"], *plan_of(row), float(share), kl_of(row, statistic)))
    return found
