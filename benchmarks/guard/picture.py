"""Predicted against measured KL on held-out items, one colour per class. Nothing is drawn without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semblend.contract import PlanShape


def draw(dots: Sequence[tuple[PlanShape, float, float]], ceiling: float, path: Path) -> bool:
    """Whether a picture was drawn. On the diagonal the prediction is exact; the dotted lines are the ceiling."""
    if not dots:
        return False
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    picture = Figure(figsize=(6, 6), layout="constrained")
    axes = picture.add_subplot()
    for shape in PlanShape:
        own = [(middle, kl) for each, middle, kl in dots if each is shape]
        if not own:
            continue
        axes.scatter([x for x, _ in own], [max(y, 1e-5) for _, y in own], label=f"{shape.value} ({len(own)})", s=14)
    values = [value for _, middle, kl in dots for value in (middle, max(kl, 1e-5))]
    ends = [min(values), max(values)]
    axes.plot(ends, ends, color="grey", linewidth=1)
    axes.axvline(ceiling, color="grey", linestyle=":")
    axes.axhline(ceiling, color="grey", linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="predicted KL (central estimate)", ylabel="measured KL, held out")
    axes.legend()
    picture.savefig(path, dpi=120)
    return True
