"""Predicted against measured KL on held-out items, one colour per class. Nothing is drawn without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.fidelity.picture import LOWEST, TONES, write_chart
from sembase.onepage.chart import Chart, Curve, DataTable, Dot, Dots, Rule
from sembase.onepage.ticks import log_axis
from semblend.contract import PlanShape

Held = tuple[PlanShape, float, float]


def draw(dots: Sequence[Held], ceiling: float, path: Path) -> bool:
    """Whether a picture was drawn."""
    return bool(dots) and write_chart(chart(dots, ceiling), path)


def chart(dots: Sequence[Held], ceiling: float) -> Chart:
    """On the diagonal the prediction is exact; the rules are the ceiling."""
    values = [max(LOWEST, value) for _, predicted, measured in dots for value in (predicted, measured)]
    ends = min(values), max(values)
    shapes = [shape for shape in PlanShape if any(each is shape for each, _, _ in dots)]
    layers = [
        Dots(
            f"{shape.value} ({sum(each is shape for each, _, _ in dots)})",
            TONES[place % len(TONES)],
            tuple(Dot(max(LOWEST, x), max(LOWEST, y)) for each, x, y in dots if each is shape),
        )
        for place, shape in enumerate(shapes)
    ]
    over = sum(measured > ceiling >= predicted for _, predicted, measured in dots)
    return Chart(
        "prediction",
        "Predicted and measured KL",
        f"{len(dots)} held-out readings; {over} are above the ceiling of {ceiling} although predicted under it.",
        log_axis("predicted KL, central estimate (nats, log)", values, str),
        log_axis("measured KL (nats, log)", values, str),
        (
            Curve("", "muted", (tuple((end, end) for end in ends)), dashed=True),
            Rule(ceiling, "ceiling", dashed=True),
            Rule(ceiling, "ceiling", vertical=True, dashed=True),
            *layers,
        ),
        DataTable((), ()),
    )
