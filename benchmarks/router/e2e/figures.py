"""Results of sembench by policy and load -> the figures of the report and its verdicts. Every figure states its n."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.targets import Verdict

POLICIES = ("round_robin", "least_loaded", "prefix_hash", "semantic_locality", "precise_prefix", "semantic_placement")
MIN_GAIN = 2.0
MAX_LOSS = 1.03


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy under one load, all rounds. ``exact`` is of the engine's own cache, ``reused`` of the connector's."""

    policy: str
    load: str
    requests: int
    failed: int
    ttft_ms: tuple[float, ...]
    round_means_ms: tuple[float, ...]
    prompt_tokens: int
    exact_tokens: int
    reused_tokens: int
    reused_requests: int
    unconfirmed: int
    routes: Mapping[str, int]
    workers: Mapping[str, int]
    placement_rate: float | None
    seconds: float

    @property
    def mean_ms(self) -> float | None:
        return float(np.mean(self.ttft_ms)) if self.ttft_ms else None

    def quantile_ms(self, q: float) -> float | None:
        return float(np.quantile(self.ttft_ms, q)) if self.ttft_ms else None

    def fraction(self, tokens: int) -> float:
        return tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def as_record(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "mean_ms": self.mean_ms,
            "p50_ms": self.quantile_ms(0.5),
            "p90_ms": self.quantile_ms(0.9),
        }


def cell_of(policy: str, load: str, results: Sequence[Mapping[str, Any]], seconds: float) -> Cell:
    rows = [row for result in results for row in result["requests"]]
    answered = [row for row in rows if row["warm"]["status"] == "ok"]
    reported = [row for row in answered if (row["backend"] or {}).get("reused_tokens") is not None]
    rates = [result["aggregate"]["semantic_placement_rate_by_request"] for result in results]
    return Cell(
        policy,
        load,
        len(rows),
        len(rows) - len(answered),
        tuple(row["warm"]["ttft_ms"] for row in answered),
        tuple(
            _mean([row["warm"]["ttft_ms"] for row in result["requests"] if row["warm"]["status"] == "ok"])
            for result in results
        ),
        sum(row["warm"]["prompt_tokens"] or 0 for row in answered),
        sum(_exact(row) for row in answered),
        sum(row["backend"]["reused_tokens"] for row in reported),
        sum(row["backend"]["reused_tokens"] > 0 for row in reported),
        len(answered) - len(reported),
        dict(Counter(row["route_outcome"] or "none" for row in rows)),
        dict(Counter(row["route_worker"] or "none" for row in rows)),
        None if not rates or None in rates else float(np.mean(rates)),
        seconds,
    )


def _exact(row: Mapping[str, Any]) -> int:
    """From the connector, which separates exact and reused tokens; otherwise what the engine calls cached."""
    boundary = (row["backend"] or {}).get("boundary")
    return int(boundary if boundary is not None else row["warm"]["cached_tokens"] or 0)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def best_of(cells: Mapping[tuple[str, str], Cell]) -> str | None:
    means = {policy: cell.mean_ms for (policy, load), cell in cells.items() if load == "rich"}
    known = {policy: mean for policy, mean in means.items() if mean is not None}
    return min(known, key=lambda policy: known[policy]) if known else None


def verdicts_of(cells: Mapping[tuple[str, str], Cell], minutes: float) -> list[Verdict]:
    best = best_of(cells) or "none"
    gain = _ratio(cells.get(("round_robin", "rich")), cells.get((best, "rich")))
    loss = _ratio(cells.get((best, "free")), cells.get(("least_loaded", "free")))
    placed = cells.get(("semantic_placement", "rich"))
    return [
        Verdict(f"rich load: mean TTFT of round_robin over that of {best} (the best)", ">=", MIN_GAIN, gain, "x"),
        Verdict(f"free load: mean TTFT of {best} over that of least_loaded", "<=", MAX_LOSS, loss, "x"),
        Verdict("failed requests", "==", 0, sum(cell.failed for cell in cells.values()), is_law=True),
        Verdict(
            "rich load: semantic_placement_rate_by_request of semantic_placement",
            ">=",
            0.01,
            None if placed is None else placed.placement_rate,
        ),
        Verdict(
            "rich load: tokens of confirmed reuse under semantic_placement",
            ">=",
            1,
            None if placed is None else placed.reused_tokens,
        ),
        Verdict("minutes", "<=", 25, minutes, "min"),
    ]


def _ratio(over: Cell | None, under: Cell | None) -> float | None:
    if over is None or under is None or not over.mean_ms or not under.mean_ms:
        return None
    return over.mean_ms / under.mean_ms


COLUMNS = (
    *("policy", "n", "failed", "TTFT mean ms", "p50", "p90", "means by round"),
    *("exact cached", "confirmed reuse", "requests reused", "routes", "workers"),
)


def rows_of(cells: Mapping[tuple[str, str], Cell], load: str) -> list[tuple[object, ...]]:
    return [_row(cells[policy, load]) for policy in POLICIES if (policy, load) in cells]


def _row(cell: Cell) -> tuple[object, ...]:
    return (
        cell.policy,
        cell.requests,
        cell.failed,
        _ms(cell.mean_ms),
        _ms(cell.quantile_ms(0.5)),
        _ms(cell.quantile_ms(0.9)),
        " ".join(f"{mean:.0f}" for mean in cell.round_means_ms),
        f"{cell.exact_tokens} ({cell.fraction(cell.exact_tokens):.0%})",
        f"{cell.reused_tokens} ({cell.fraction(cell.reused_tokens):.0%})",
        f"{cell.reused_requests} of {len(cell.ttft_ms)}"
        + (f", {cell.unconfirmed} unknown" if cell.unconfirmed else ""),
        ", ".join(f"{name} {count}" for name, count in sorted(cell.routes.items())),
        ", ".join(f"{name} {count}" for name, count in sorted(cell.workers.items())),
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def write_report(
    path: Path, cells: Mapping[tuple[str, str], Cell], verdicts: Sequence[Verdict], about: Sequence[str]
) -> None:
    """A self-contained Markdown page."""
    lines = ["# Two vLLM servers behind `kvmend route`", "", *about, ""]
    for load in ("rich", "free"):
        lines += [f"## Locality-{load} load", "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in rows_of(cells, load)]
        lines.append("")
    lines += ["## Verdicts", "", "| what | target | measured | verdict |", "|---|---|---|---|"]
    for verdict in verdicts:
        measured = "-" if verdict.measured is None else f"{verdict.measured:.4g}"
        lines.append(
            f"| {verdict.name} | {verdict.comparison} {verdict.limit:g} {verdict.unit} | {measured} | {verdict.word} |"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
