"""The answers of several runs of one model as one table: ``python -m benchmarks.answers.table NAME ...``.

Runs of other seeds have other items, so their pairs are counted together, each held against the floor of its own run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.console import RESULTS, show_table
from sembase.errors import ConfigurationError
from sembench.flips import AnswerClass, answer_classes, floor_arms
from sembench.metrics.rows import ArmRow, RequestRow, is_clean, is_reused, pairs_of, speedup
from sembench.report.estimates import wilson
from sembench.result import read_result

_COLUMNS = (
    *("task", "transform", "served", "reused", "TTFT x", "score cold", "ours", "change [95 %]", "F1 to cold"),
    *("same", "right cold", "lost", "beyond floor", "at most", "stale beyond"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers.table", description=__doc__)
    parser.add_argument("names", nargs="+", help="names of runs of benchmarks.answers with the same settings")
    arguments = parser.parse_args()
    lines = lines_of(*read_runs([RESULTS / f"answers-{name}" for name in arguments.names]))
    show_table(", ".join(arguments.names), _COLUMNS, lines)
    return 0


def read_runs(folders: Sequence[Path]) -> tuple[list[RequestRow], dict[str, ArmRow], int]:
    """Their rows, their floors' cold arms, and their block size. Models must agree, and no item may be in two runs."""
    rows: list[RequestRow] = []
    floor: dict[str, ArmRow] = {}
    configs = set()
    for folder in folders:
        result, own = read_result(folder / "result.json")
        rows += own
        configs.add((result["config"]["model"], result["config"]["block_size"]))
        if (again := folder / "floor.json").exists():
            floor |= floor_arms(read_result(again)[1])
    if len(configs) != 1:
        raise ConfigurationError("the runs are of different models or block sizes")
    if len({row.item_id for row in rows}) != len(rows):
        raise ConfigurationError("an item is in two of the runs; give them different seeds")
    return rows, floor, configs.pop()[1]


def lines_of(rows: Sequence[RequestRow], floor: Mapping[str, ArmRow], block_size: int) -> list[tuple[object, ...]]:
    """One line per class, as ``answer_classes`` orders them."""
    return [_line(one, rows, block_size) for one in answer_classes(rows, floor, block_size=block_size)]


def _line(one: AnswerClass, rows: Sequence[RequestRow], block_size: int) -> tuple[object, ...]:
    served = [row for row in _of(one, rows, block_size) if is_reused(row)]
    reused = [
        row.backend.reused_tokens / row.prompt_tokens for row in served if row.backend and row.backend.reused_tokens
    ]
    upper = wilson(one.flips_beyond_floor, one.answerable)
    return (
        one.task,
        one.transform,
        f"{one.served} of {one.pairs}",
        f"{median(reused):.0%}" if reused else None,
        f"{median(speedup(row) for row in served):.1f}" if served else None,
        None if one.cold is None else f"{one.cold:.2f}",
        None if one.ours is None else f"{one.ours:.2f}",
        None if one.change is None else one.change.shown("{:+.3f}".format),
        None if one.f1_to_cold is None else f"{one.f1_to_cold:.2f}",
        f"{one.same} of {one.served}",
        one.answerable,
        one.flips,
        one.flips_beyond_floor,
        None if upper is None else f"{upper.high:.1%}",
        None if one.stale_beyond_floor is None else f"{one.stale_beyond_floor} of {one.revised}",
    )


def _of(one: AnswerClass, rows: Sequence[RequestRow], block_size: int) -> list[RequestRow]:
    chosen = [row for row in pairs_of(rows) if is_clean(row, block_size) and not row.negative_control]
    return [row for row in chosen if one.task == "all" or (row.dataset, row.transform) == (one.task, one.transform)]


if __name__ == "__main__":
    raise SystemExit(main())
