"""Eviction by admission in one setting: rows of ranking, and how warm each is against LRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semantic_kv.experiment.config import PolicyChoice
from semantic_kv.experiment.study import CacheSetting, RankedPolicy, Study
from semantic_kv.experiment.verdict import TIE
from semantic_kv.report.formats import change, milliseconds, percent
from sembase.onepage.formats import NOT_MEASURED
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import scrolling

_STEPS: Final = (TIE, 0.02, 0.10, 0.25)  # improvements at which the colour of a cell changes


def ablation_rows(study: Study, setting: CacheSetting) -> list[tuple[str, list[RankedPolicy | None]]]:
    """Best eviction first; empty if the study has no ablation."""
    plan = study.config.ablation
    if plan is None:
        return []
    rows = [
        (evict, [study.result_of(setting, PolicyChoice(evict, admit)) for admit in plan.admit]) for evict in plan.evict
    ]
    return sorted(rows, key=lambda row: min((s.ttft_mean_ms for s in row[1] if s), default=0.0))


def ablation_table(study: Study, setting: CacheSetting) -> Safe | None:
    rows = ablation_rows(study, setting)
    if not rows or study.config.ablation is None:
        return None
    return _heat_table("eviction", study.config.ablation.admit, [(name, [_cell(s) for s in row]) for name, row in rows])


def _heat_table(
    corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[str, int, str]]]]
) -> Safe:
    """Rows of (text, heat, title): heat is -4 (worst) to 4 (best), 0 is the baseline's."""
    head = [tag("th", corner, scope="col"), *(tag("th", name, class_="n", scope="col") for name in columns)]
    body = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            *(tag("td", text, class_=f"n heat{heat:+d}", title=title) for text, heat, title in cells),
        )
        for name, cells in rows
    ]
    return scrolling(tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="heat"))


def _cell(ranked: RankedPolicy | None) -> tuple[str, int, str]:
    if ranked is None:
        return NOT_MEASURED, 0, ""
    title = f"{ranked.name}: {milliseconds(ranked.ttft_mean_ms)}, hit rate {percent(ranked.hit_ratio, 2)}"
    return change(ranked.improvement, 1), heat(ranked.improvement), title


def heat(improvement: float) -> int:
    warmth = sum(abs(improvement) > step for step in _STEPS)
    return warmth if improvement > 0 else -warmth
