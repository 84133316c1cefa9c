"""What the gates decide: every gate with the figure it was judged by, and every reason to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sembench.gates.request import GateRequest


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure and what it rests on: how many requests, what was divided by what, its 95 % interval."""

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
    """``judged`` is the number held against the limit: the figure itself or an end of its interval.

    ``min_n`` is None for a gate nobody asked for: what must be zero must be so over few requests, too.
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
    """``checked`` names the figures that must be zero and were measured."""

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
        why_missing: str = "was not measured (None is not 0)",
    ) -> None:
        """``judged`` is given where another number than the figure is held against the limit."""
        self.observed[metric] = measured.value
        held = measured.value if judged is None else judged
        asked = gate in self.request.requested()
        min_n = self.request.min_n if asked and measured.n is not None else None
        failures_before = len(self.failures)
        if held is None:
            self.lack(metric, f"{gate}: {metric} {why_missing}; --allow-missing lets that pass")
        else:
            if not holds(held):
                by = "" if judged is None else f", judged by {held:.6g},"
                self.failures.append(f"{gate}: {metric} is {measured}{by or ','} wanted {wanted}")
            if min_n is not None and measured.n is not None and measured.n < min_n:
                self.failures.append(f"{gate}: {metric} rests on n = {measured.n}, and --min-n wants {min_n}")
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

    def lack(self, metric: str, complaint: str) -> None:
        """What was asked for is not there: a failure, unless the user said that it may be missing."""
        self.missing.append(metric)
        if not self.request.allow_missing:
            self.failures.append(complaint)

    def fail(self, gate: str, metric: str, wanted: str, complaint: str) -> None:
        """A gate that is no comparison of one figure."""
        self.failures.append(f"{gate}: {complaint}")
        self.gates.append(JudgedGate(gate, metric, wanted, False, None, None, None, None, None, None, None))

    def gates_as_json(self) -> list[dict[str, Any]]:
        return [asdict(gate) for gate in self.gates]


def measured_in(aggregate: Mapping[str, Any], metric: str) -> Measured:
    """A figure of an aggregate with its parts. The aggregate is already known to be what the rows give, or refused."""
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
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
