"""Figures as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median

from benchmarks.agent_breaks.figures import PLACES, Figures
from benchmarks.agent_breaks.readings import Arm
from benchmarks.estimates import Quartiles
from sembench.console.table import NOT_MEASURED, Table, narrow_text, number

WIDTH = 80
NAMES: dict[Arm, str] = {"stock": "stock", "off": "no repair", "idle": "repair"}
PLACE_NAMES = {
    "first": "first turn",
    "before": "before the break",
    "break": "break",
    "next": "turn after",
    "later": "later turns",
}


def shown(figures: Figures) -> str:
    return "".join(narrow_text(table, WIDTH) for table in tables(figures))


def tables(figures: Figures) -> Iterator[Table]:
    yield _by_place(figures)
    yield _by_kind(figures)
    yield _tokens(figures)


def _by_place(figures: Figures) -> Table:
    rows = []
    for place in PLACES:
        for arm in figures.arms:
            turns = figures.at(arm, place)
            if not turns:
                continue
            same, compared = figures.same_calls(arm, place)
            rows.append(
                (
                    PLACE_NAMES[place],
                    NAMES[arm],
                    str(len(turns)),
                    _spread(figures.ttft(arm, place)),
                    number(median(turn.exact_tokens for turn in turns)),
                    number(median(turn.reused_tokens for turn in turns)),
                    number(median(turn.prefill_tokens for turn in turns)),
                    _kl(figures.mean_kl(arm, place)),
                    f"{same}/{compared}" if compared else NOT_MEASURED,
                )
            )
    return Table(
        f"Turns of {len(figures.sessions)} sessions by their place: medians (TTFT with quartiles), mean KL to cold",
        ("turn", "arm", "n", "TTFT ms", "exact tokens", "blended tokens", "computed tokens", "KL nats", "same calls"),
        tuple(rows),
        notes=(
            "computed: prompt tokens prefilled before the answer. same calls: recorded tool calls along which the most "
            "likely token equals cold's at every position. stock's KL and calls are the engine's own noise: a prefix "
            "hit against a prefill in one piece.",
        ),
    )


def _by_kind(figures: Figures) -> Table:
    rows = []
    for kind, readings in sorted(figures.by_kind().items()):
        cells = [kind.replace("_", " "), str(len({reading.session for reading in readings}))]
        for arm in figures.arms:
            own = [reading for reading in readings if reading.arm == arm]
            cells.append(number(median(reading.ttft_ms for reading in own)) if own else NOT_MEASURED)
        blended = [reading for reading in readings if reading.arm == figures.arms[-1]]
        values = [mean(reading.kl) for reading in blended if reading.kl]
        cells += [
            f"{sum(reading.is_blended for reading in blended)}/{len(blended)}",
            number(median(reading.reused_tokens for reading in blended)) if blended else NOT_MEASURED,
            _kl(mean(values) if values else None),
        ]
        rows.append(tuple(cells))
    arms = tuple(f"{NAMES[arm]} ms" for arm in figures.arms)
    last = NAMES[figures.arms[-1]] if figures.arms else ""
    return Table(
        f"The turn of the break by its kind: median TTFT; blended turns, tokens and mean KL of the arm '{last}'",
        ("kind", "sessions", *arms, "blended", "blended tokens", "KL nats"),
        tuple(rows),
    )


def _tokens(figures: Figures) -> Table:
    stock = figures.computed_per_session("stock") if "stock" in figures.arms else None
    rows = []
    for arm in figures.arms:
        computed = figures.computed_per_session(arm)
        hits, counted = figures.hits_after_repair(arm)
        every, asked = figures.hits_after_repair(arm, only_repaired=False)
        n, right, stale = figures.facts(arm)
        rows.append(
            (
                NAMES[arm],
                number(figures.computed_per_session(arm, lambda reading: reading.prefill_tokens)),
                number(figures.computed_per_session(arm, lambda reading: reading.repaired_tokens)),
                number(figures.computed_per_session(arm, lambda reading: reading.studied_tokens)),
                number(computed),
                NOT_MEASURED if not stock else f"{computed / stock:.2f}x",
                f"{hits}/{counted}" if counted else NOT_MEASURED,
                f"{every}/{asked}" if asked else NOT_MEASURED,
                f"{right}/{n} ({stale})" if n else NOT_MEASURED,
            )
        )
    return Table(
        "Tokens computed per session, the exact hit of the turn after a blended break, and changed facts",
        (
            "arm",
            "before answers",
            "by repair",
            "isolated prefill",
            "in total",
            "over stock",
            "hit, if repaired",
            "hit, of all",
            "facts right (stale)",
        ),
        tuple(rows),
        notes=(
            "facts: of the changed facts that a cold prefill states, how many the arm states (how many are stale).",
        ),
    )


def _spread(spread: Quartiles | None) -> str:
    return NOT_MEASURED if spread is None else f"{spread.median:.0f} ({spread.low:.0f}-{spread.high:.0f})"


def _kl(value: float | None) -> str:
    return NOT_MEASURED if value is None else "0" if value == 0 else f"{value:.1e}"
