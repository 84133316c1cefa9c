"""Recorded rows read back: the class of what was loaded, and its KL by either statistic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semblend.contract import ContextRisk, PlanShape, Run, shape_of
from semblend.guard.divergence import kl_lower_bound
from semblend.guard.pair import Answer, divergence

OF_ANSWER = "16 tokens of its answer, 20 likeliest"
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


def shape_of_row(row: Row) -> PlanShape:
    """The class of what was loaded."""
    runs = [
        Run(str(donor), donor_start, start, length, ContextRisk(preceding, differing, share))
        for donor, donor_start, start, length, preceding, differing, share in row["runs"]
    ]
    return shape_of(runs)


def kl_of(row: Row, statistic: str) -> float:
    cold, other = (
        Answer("m", tuple({str(int(token)): value for token, value in each} for each in row[name]), None)
        for name in ("cold_top", "top")
    )
    return kl_lower_bound(cold.tokens[0], other.tokens[0]) if statistic == OF_FIRST_TOKEN else divergence(cold, other)
