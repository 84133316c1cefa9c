"""Pareto fronts per case: KL along the model's answer and along a given text, against the computed fraction and TTFT.

Nothing is drawn without matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fidelity.arm import DEFAULT
from benchmarks.fidelity.figures import FLOOR, Figures, front
from benchmarks.vllm.estimates import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Panel:
    """One row of the picture: what is drawn upwards, and what it costs."""

    kl: Callable[[Figures], Interval]
    cost: Callable[[Figures], float | None]
    kl_label: str
    cost_label: str


def _share(one: Figures) -> float | None:
    return one.whole_share


def _time(one: Figures) -> float | None:
    return 1 / one.ttft_ratio.estimate if one.ttft_ratio else None


PANELS = (
    Panel(lambda one: one.answer_kl, _share, "KL along its answer", "computed over the claim, probes included"),
    Panel(lambda one: one.kl_mean, _share, "KL along a given text", "computed over the claim, probes included"),
    Panel(lambda one: one.answer_kl, _time, "KL along its answer", "TTFT over cold TTFT"),
)


def draw(figures: Sequence[Figures], path: Path) -> bool:
    """Whether a picture was drawn. Bars are 95 % intervals, the dotted line is the noise floor."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    cases = list(dict.fromkeys(one.case for one in figures if one.case != "all"))
    policies = list(dict.fromkeys(one.arm.partition("@")[0] for one in figures if one.arm != FLOOR))
    panels = [panel for panel in PANELS if any(panel.cost(one) is not None for one in figures)]
    picture = Figure(figsize=(3.6 * len(cases), 3.4 * len(panels)), layout="constrained")
    grid = picture.subplots(len(panels), len(cases), sharey="row", squeeze=False)
    for panel, row in zip(panels, grid, strict=True):
        for case, axes in zip(cases, row, strict=True):
            _fill(axes, panel, [one for one in figures if one.case == case], policies)
            axes.set_title(case, fontsize=10)
        row[0].set_ylabel(f"{panel.kl_label}, nats (log)")
    handles, labels = grid[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    picture.savefig(path, dpi=120)
    return True


def _fill(axes: Axes, panel: Panel, group: Sequence[Figures], policies: Sequence[str]) -> None:
    for number, policy in enumerate(policies):
        known = [(cost, panel.kl(one)) for one in group if (cost := _cost(panel, one, policy)) is not None]
        known.sort(key=lambda pair: pair[0])
        places, heights = [cost for cost, _ in known], [kl.estimate for _, kl in known]
        bars = [[kl.estimate - kl.low for _, kl in known], [kl.high - kl.estimate for _, kl in known]]
        colour = f"C{number % 10}"
        axes.errorbar(places, heights, bars, fmt="o-", ms=4, lw=1, capsize=2, color=colour, label=policy)
    # What the gates let through is other items, and an experiment no way to serve: neither beats anything.
    best = front([one for one in group if one.arm != DEFAULT and "!" not in one.arm], panel.cost, panel.kl)
    axes.plot([panel.cost(one) or 0.0 for one in best], [panel.kl(one).estimate for one in best], "k-", alpha=0.2, lw=5)
    for one in group:
        if one.arm == FLOOR:
            axes.axhline(max(1e-6, panel.kl(one).estimate), ls=":", color="grey")
    axes.set_yscale("log")
    axes.set_xlabel(panel.cost_label, fontsize=8)


def _cost(panel: Panel, one: Figures, policy: str) -> float | None:
    return panel.cost(one) if one.arm.partition("@")[0] == policy else None
