"""Selection rules side by side at equal shares, on composition and reorder items or others, in the real engine.

``python -m benchmarks.fidelity.compare_rules [RULE@FRACTION[+HEADS] ...]``. Every rule chooses from the same
signals of an item; rows are appended as they come and a run of the same name continues where it stopped. Published
rules, as their papers describe them: ``first`` (EPIC), ``deviation`` (CacheBlend), ``question`` (ProphetKV), ``digest``
(QCFuse), ``norm`` (InfoFlow).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from scripts.models.known import MODELS, SMOLLM2

from benchmarks.console import show_table
from benchmarks.documents import ROOT
from benchmarks.fidelity.engine_process import run_inside
from benchmarks.fidelity.figures import Row, mean_interval, read_rows
from benchmarks.fidelity.items import CASES, COMPOSITION, REORDER
from semblend.plan.selection import DEFAULT_POLICY

FOLDER = ROOT / ".cache" / "fidelity"
BASE = DEFAULT_POLICY
FRACTIONS = (0.15, 0.05, 0.1, 0.2)
RULES = (BASE, "deviation", "digest", "norm", "first", "random", "oracle_both")
STANDARD = tuple(f"{rule}@{fraction}" for fraction in FRACTIONS for rule in RULES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.compare_rules", description=__doc__)
    parser.add_argument("rules", nargs="*", help=f"(default: {' '.join(RULES)}, each at {FRACTIONS})")
    parser.add_argument("--report", action="store_true", help="show the rows of that name without measuring")
    parser.add_argument("--name", default="rules", help="rows are kept in .cache/fidelity/NAME-MODEL.jsonl")
    parser.add_argument("--model", choices=MODELS, default=SMOLLM2.name)
    parser.add_argument("--dtype", default="float32", help="of the engine; bfloat16 has a noise floor of its own")
    parser.add_argument("--size", default="1K", help="prompt size: 1K, 2K, 4K")
    parser.add_argument("--cases", nargs="+", default=[COMPOSITION, REORDER], choices=CASES)
    parser.add_argument("--sources", nargs="+", default=["questions"], help="of the items")
    parser.add_argument("--most", type=int, default=5, help="items per case and source")
    parser.add_argument(
        "--no-repeat",
        dest="repeat",
        action="store_false",
        help="measure no repetition of donors, which takes most of the time at 4K; rules that read it fail",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of the engine")
    arguments = parser.parse_args()
    path = FOLDER / f"{arguments.name}-{arguments.model}.jsonl"
    if not arguments.report:
        path.parent.mkdir(parents=True, exist_ok=True)
        passed = ["--rules", "--model", arguments.model, "--dtype", arguments.dtype, "--out", str(path)]
        passed += ["--size", arguments.size, "--most", str(arguments.most), "--cases", *arguments.cases]
        passed += [] if arguments.repeat else ["--no-repeat"]
        passed += ["--sources", *arguments.sources, "--", *(arguments.rules or STANDARD)]
        if (code := run_inside("benchmarks.fidelity.inside", passed, arguments.threads)) != 0:
            return code
    elif not path.is_file():
        parser.error(f"nothing was measured under the name {arguments.name}: run the same command without --report")
    rows = read_rows([path])
    for case in dict.fromkeys(row["case"] for row in rows):
        show_table(f"{arguments.model}: {case}", COLUMNS, lines_of([row for row in rows if row["case"] == case]))
    return 0


COLUMNS = (
    *("rule", "items", "computed", "groups", "KL, given text", "against the default", "better"),
    *("KL, its answer", "against the default ", "better "),
)


def lines_of(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """One line per rule and fraction; differences are paired by item with the default rule at the same fraction."""
    arms: dict[str, dict[str, Row]] = {}
    for row in rows:
        arms.setdefault(row["arm"], {})[row["item"]] = row
    return [_line(arm, mine, arms.get(f"{BASE}@{_budget(arm)}", {})) for arm, mine in arms.items()]


def _line(arm: str, mine: dict[str, Row], base: dict[str, Row]) -> tuple[object, ...]:
    computed = [row["computed_tokens"] / row["claimed_tokens"] for row in mine.values()]
    shared = [item for item in mine if item in base]
    cells: list[object] = [
        arm,
        len(mine),
        f"{np.mean(computed):.1%}",
        f"{np.mean([row['groups'] for row in mine.values()]):.0f}",
    ]
    for key in ("kl", "answer_kl"):
        cells.append(mean_interval([mean_kl(row, key) for row in mine.values()]).shown("{:.4f}"))
        gains = [mean_kl(mine[item], key) - mean_kl(base[item], key) for item in shared]
        cells.append(mean_interval(gains).shown("{:+.4f}") if gains else None)
        cells.append(f"{sum(gain < 0 for gain in gains)} of {len(gains)}" if gains else None)
    return tuple(cells)


def mean_kl(row: Row, key: str) -> float:
    values: Any = row[key]
    return float(np.mean(values))


def _budget(arm: str) -> str:
    """The fraction and the heads: what the default rule is given for the comparison."""
    return arm.partition("@")[2]


if __name__ == "__main__":
    raise SystemExit(main())
