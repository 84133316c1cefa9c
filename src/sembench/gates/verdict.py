"""The verdict: every gate with the figure it was judged by, and every failure message."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from sembench.gates.request import GateRequest
from sembench.gates.table import BY_NAME

_UNMEASURED: Final = "was not measured (None is not 0)"


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its basis: number of requests, numerator and denominator, 95 % interval."""

    value: float | None
    n: int | None = None
    numerator: float | None = None
    denominator: float | None = None
    ci95: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.value is None:
            return "not measured"
        details = []
        if self.numerator is not None and self.denominator is not None:
            details.append(f"{self.numerator:.6g} of {self.denominator:.6g}")
        if self.ci95 is not None:
            details.append(f"95 % interval {self.ci95[0]:.6g} to {self.ci95[1]:.6g}")
        if self.n is not None:
            details.append(f"n = {self.n}")
        return f"{self.value:.6g}" + (f" ({', '.join(details)})" if details else "")


@dataclass(frozen=True, slots=True)
class JudgedGate:
    """``judged`` is the number compared with the limit: the figure itself or an end of its interval.

    ``min_n`` is None for a gate that was not requested: figures that must be zero must be zero for any n.
    """

    gate: str
    metric: str
    wanted: str
    passed: bool
    value: float | None
    judged: float | None
    n: int | None
    min_n: int | None
    numerator: float | None
    denominator: float | None
    ci95: tuple[float, float] | None


@dataclass(slots=True)
class Verdict:
    """``checked`` lists the must-be-zero figures that were measured."""

    request: GateRequest
    failures: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    observed: dict[str, Any] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)
    gates: list[JudgedGate] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def decide(
        self,
        gate: str,
        metric: str,
        measured: Measured,
        holds: Callable[[float], bool],
        wanted: str,
        *,
        judged: float | None = None,
        why_missing: str = _UNMEASURED,
    ) -> None:
        """``judged`` replaces the figure in the comparison with the limit, e.g. an end of its interval."""
        self.observed[metric] = measured.value
        held = measured.value if judged is None else judged
        asked = gate in self.request.requested
        min_n = self.request.min_n if asked and measured.n is not None else None
        failures_before = len(self.failures)
        if held is None:
            self.lack(metric, f"{gate}: {metric} {why_missing}; --allow-missing accepts this")
        else:
            if not holds(held):
                by = "" if judged is None else f", judged by {held:.6g},"
                self.failures.append(f"{gate}: {metric} is {measured}{by or ','} wanted {wanted}")
            if min_n is not None and measured.n is not None and measured.n < min_n:
                self.failures.append(f"{gate}: {metric} has n = {measured.n}, but --min-n requires {min_n}")
        self.gates.append(
            JudgedGate(
                gate,
                metric,
                wanted,
                passed=len(self.failures) == failures_before,
                value=measured.value,
                judged=held,
                n=measured.n,
                min_n=min_n,
                numerator=measured.numerator,
                denominator=measured.denominator,
                ci95=measured.ci95,
            )
        )

    def judge(
        self,
        gate: str,
        measured: Measured,
        *,
        figure: str | None = None,
        wanted: str = "",
        spare: float = 0.0,
        judged: float | None = None,
        why_missing: str = _UNMEASURED,
    ) -> None:
        """By the row of the gate's table and its limit, if it has one. ``wanted`` is added to the limit's words.

        ``spare`` widens the limit of an "at most" gate, by a measured noise floor.
        """
        row, limit = BY_NAME[gate], self.request.limit(gate)
        if limit is not None:
            words = row.wanted(limit) + wanted
            holds = partial(row.holds, limit=limit + spare)
            self.decide(gate, figure or row.figure, measured, holds, words, judged=judged, why_missing=why_missing)

    def judge_ratio(self, gate: str, measured: Measured) -> None:
        """By the median or, with ``judge_interval``, by the unfavourable end of its interval."""
        if not self.request.judge_interval:
            self.judge(gate, measured)
        elif measured.ci95 is not None:
            self.judge(gate, measured, judged=BY_NAME[gate].unfavourable(measured.ci95))
        else:
            n = measured.n or 0
            why = f"has no 95 % interval, which --judge-interval needs (n = {n}; at least 6 pairs are required)"
            self.judge(gate, Measured(None, n=measured.n), why_missing=why)

    def lack(self, metric: str, message: str) -> None:
        """A requested figure is missing: a failure, unless ``--allow-missing`` is given."""
        self.missing.append(metric)
        if not self.request.allow_missing:
            self.failures.append(message)

    def fail(self, gate: str, metric: str, wanted: str, message: str) -> None:
        """Record the failure of a gate that does not compare a single figure with a limit."""
        self.failures.append(f"{gate}: {message}")
        self.gates.append(JudgedGate(gate, metric, wanted, False, None, None, None, None, None, None, None))

    def gates_as_json(self) -> list[dict[str, Any]]:
        return [asdict(gate) for gate in self.gates]


def measured_in(aggregate: Mapping[str, Any], metric: str) -> Measured:
    """A figure of an aggregate with its parts. ``integrity_failures`` has already checked it against the rows."""
    parts = aggregate.get("parts")
    part = parts.get(metric) if isinstance(parts, Mapping) else None
    found = part if isinstance(part, Mapping) else {}
    n = number(found.get("n"))
    return Measured(
        number(aggregate.get(metric)),
        None if n is None else int(n),
        number(found.get("numerator")),
        number(found.get("denominator")),
    )


def number(value: object) -> float | None:
    """The value if it is a finite number. A result with any other has failed by its rows; no gate computes with it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None
