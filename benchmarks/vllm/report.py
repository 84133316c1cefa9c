"""Rows of a run -> cells with medians and spread, tables, and targets next to the figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.console import show_table
from benchmarks.estimates import Quartiles
from benchmarks.targets import Verdict
from benchmarks.vllm.arms import Row
from benchmarks.vllm.quality import Distance
from benchmarks.vllm.workload import SAME_DOCUMENT

SPEEDUPS = {"4K": 12.0, "8K": 25.0}
MAX_SERVED_KL = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """The rows of one size and case. Speed is computed from served rows; declined and contaminated ones are counted."""

    size: str
    case: str
    rows: tuple[Row, ...]

    @property
    def clean(self) -> list[Row]:
        return [row for row in self.rows if not row.is_contaminated]

    @property
    def served(self) -> list[Row]:
        return [row for row in self.rows if row.is_served]

    @property
    def declines(self) -> Counter[str]:
        return Counter(
            f"{row.result.outcome}: {row.result.reason}"
            for row in self.clean
            if row.result is not None and not row.is_served
        )

    def speedups(self) -> list[float]:
        return [row.cold_ms / row.ours_ms for row in self.served if row.cold_ms and row.ours_ms]

    def over_exact(self) -> list[float]:
        return [row.ours_ms / row.exact_ms for row in self.served if row.ours_ms and row.exact_ms]

    def computed_share(self) -> list[float]:
        return [1.0 - row.result.reused_tokens / row.prompt_tokens for row in self.served if row.result is not None]

    def distances(self, kind: str) -> list[Distance]:
        found = [getattr(row, kind) for row in self.clean]
        return [value for value in found if value is not None]


def cells_of(rows: Sequence[Row]) -> list[Cell]:
    keys = dict.fromkeys((row.size, row.case) for row in rows)
    return [Cell(size, case, tuple(r for r in rows if (r.size, r.case) == (size, case))) for size, case in keys]


def mean_kl(distances: Sequence[Distance]) -> float | None:
    return None if not distances else sum(d.mean_kl for d in distances) / len(distances)


def ppl_ratio(distances: Sequence[Distance]) -> float | None:
    """Over all positions of all items of a cell at once."""
    losses = [loss for distance in distances for loss in distance.log_loss]
    return math.exp(sum(losses) / len(losses)) if losses else None


def worse_kl(cell: Cell) -> float | None:
    """Of the two texts that were scored."""
    found = [
        kl for kl in (mean_kl(cell.distances("ours_real")), mean_kl(cell.distances("ours_greedy"))) if kl is not None
    ]
    return max(found, default=None)


def show_speed(cells: Sequence[Cell]) -> None:
    table = []
    for cell in cells:
        columns: list[list[float]] = [
            [row.cold_ms for row in cell.clean if row.cold_ms],
            [row.exact_ms for row in cell.clean if row.exact_ms],
            [row.ours_ms for row in cell.served if row.ours_ms],
        ]
        parts: list[Callable[[Row], float | None]] = [
            lambda row: row.result.lookup_ms if row.result else None,
            lambda row: row.result.load_ms if row.result else None,
            lambda row: row.result.compute_ms if row.result else None,
        ]
        inside = [_median([value for row in cell.served if (value := part(row)) is not None]) for part in parts]
        table.append(
            (
                f"{cell.size} {cell.case}",
                f"{len(cell.served)}/{len(cell.rows)}",
                *(_shown(values, "{:.0f}") for values in columns),
                _shown(cell.speedups(), "{:.1f}"),
                _shown(cell.over_exact(), "{:.2f}"),
                _shown(cell.computed_share(), "{:.3f}"),
                " / ".join("-" if value is None else f"{value:.1f}" for value in inside),
                "; ".join(f"{count} {what}" for what, count in cell.declines.items()) or None,
            )
        )
    columns_shown = (
        *("cell", "served", "cold ms", "exact hit ms", "ours ms", "cold / ours", "ours / exact"),
        *("computed fraction", "look-up / load / sparse ms", "not served"),
    )
    show_table("Time to first token: median (quartiles)", columns_shown, table)


def show_quality(cells: Sequence[Cell]) -> None:
    table = []
    for cell in cells:
        real, greedy = cell.distances("ours_real"), cell.distances("ours_greedy")
        exact, cold = cell.distances("exact_real"), cell.distances("cold_real")
        agreements = [row.ours_agreement for row in cell.served if row.ours_agreement is not None]
        floor = [row.exact_agreement for row in cell.clean if row.exact_agreement is not None]
        table.append(
            (
                f"{cell.size} {cell.case}",
                len(real),
                *(_number(mean_kl(part), "{:.4f}") for part in (real, greedy, exact, cold)),
                _number(max((d.worst_kl for d in (*real, *greedy)), default=None), "{:.3f}"),
                *(_number(ppl_ratio(part), "{:.4f}") for part in (real, exact, cold)),
                _number(_mean([d.top1 for d in (*real, *greedy)]), "{:.3f}"),
                _number(_mean([d.top1 for d in exact]), "{:.3f}"),
                " / ".join("-" if (value := _mean(part)) is None else f"{value:.1f}" for part in (agreements, floor)),
                _number(_mean([d.uncovered for d in (*real, *exact)]), "{:.3f}"),
            )
        )
    columns = (
        *("cell", "n", "KL real", "KL greedy", "KL exact hit", "KL cold again", "KL worst"),
        *("PPL ratio", "PPL exact hit", "PPL cold again", "top-1", "top-1 exact", "greedy ours / exact", "uncovered"),
    )
    show_table("Quality against cold: first 16 positions, real text and the cold answer", columns, table)


def show_settings(results: Mapping[tuple[str, str], Sequence[Cell]]) -> None:
    """Cells of several models and gates, by ``(model, gates)``, next to each other."""
    models = dict.fromkeys(model for model, _ in results)
    settings = list(dict.fromkeys(gates for _, gates in results))
    table = []
    for model in models:
        cells = {gates: {(c.size, c.case): c for c in results.get((model, gates), ())} for gates in settings}
        for size, case in dict.fromkeys(key for found in cells.values() for key in found):
            chosen = [cells[gates].get((size, case)) for gates in settings]
            table.append((f"{model} {size} {case}", *(figure for cell in chosen for figure in _figures(cell))))
    columns = [
        f"{gates}: {name}"
        for gates in settings
        for name in ("served", "cold / ours", "ours / exact", "KL real", "KL greedy")
    ]
    show_table("Gates next to each other: medians of ratios within an item, mean KL to cold", ("cell", *columns), table)


def _figures(cell: Cell | None) -> tuple[str | None, ...]:
    if cell is None:
        return (None,) * 5
    return (
        f"{len(cell.served)}/{len(cell.clean)}",
        _number(_median(cell.speedups()), "{:.2f}x"),
        _number(_median(cell.over_exact()), "{:.2f}x"),
        *(_number(mean_kl(cell.distances(kind)), "{:.4f}") for kind in ("ours_real", "ours_greedy")),
    )


def speed_verdicts(cells: Sequence[Cell], speedups: Mapping[str, float]) -> list[Verdict]:
    """``speedups``: targets by size. Only the model they were set for has them."""
    by_size = {cell.size: cell for cell in cells if cell.case == SAME_DOCUMENT}
    found = [
        Verdict(f"same document at {size}: cold over ours", ">=", limit, _median(by_size[size].speedups()), "x")
        for size, limit in speedups.items()
        if size in by_size
    ]
    if "8K" in by_size and "8K" in speedups:
        found.append(
            Verdict("same document at 8K: ours over exact hit", "<=", 2.5, _median(by_size["8K"].over_exact()))
        )
    contaminated = sum(row.is_contaminated for cell in cells for row in cell.rows)
    return [*found, Verdict("rows whose cold arm was not cold", "==", 0, contaminated)]


def quality_verdicts(cells: Sequence[Cell], *, default_gates: bool) -> list[Verdict]:
    found = []
    for cell in cells:
        if cell.case == SAME_DOCUMENT:
            ratio = ppl_ratio(cell.distances("ours_real"))
            off = None if ratio is None else abs(ratio - 1.0)
            found.append(Verdict(f"same document at {cell.size}: PPL ratio off 1.00 by", "<=", 0.02, off))
            found.append(Verdict(f"same document at {cell.size}: mean KL", "<=", 0.01, worse_kl(cell)))
    if default_gates:
        served = [kl for cell in cells if cell.served and (kl := worse_kl(cell)) is not None]
        worst = max(served, default=0.0)
        found.append(Verdict("default gates: largest mean KL of a case they serve", "<=", MAX_SERVED_KL, worst))
    return found


def recompute_verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    return [
        Verdict(f"everything recomputed, {cell.size} {cell.case}: mean KL", "<=", 1e-3, worse_kl(cell))
        for cell in cells
    ]


def _shown(values: Sequence[float], form: str) -> str | None:
    spread = Quartiles.of(values)
    return None if spread is None else spread.shown(form)


def _median(values: Sequence[float]) -> float | None:
    spread = Quartiles.of(values)
    return None if spread is None else spread.median


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)
