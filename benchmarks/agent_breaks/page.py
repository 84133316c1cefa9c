"""Figures as one self-contained page: TTFT around the break, tokens computed, and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from benchmarks.agent_breaks.figures import Figures
from benchmarks.agent_breaks.planted import EVERY_TURN, OTHER_TENANT
from benchmarks.agent_breaks.readings import Arm, Reading
from benchmarks.agent_breaks.tables import NAMES, tables
from benchmarks.targets import Verdict
from benchmarks.vllm.estimates import Quartiles
from sembase.onepage.chart import Bar, Bars, Chart, Curve, DataTable, Dot, Dots, Layer, Whisker, Whiskers
from sembase.onepage.formats import tick_ms
from sembase.onepage.page import document, framed, style_of
from sembase.onepage.section import Section, card, columns, figure, table
from sembase.onepage.ticks import category_axis, linear_axis, log_axis

TONES: Final[dict[Arm, str]] = {"stock": "cold", "off": "miss", "idle": "reuse"}
_PREFIX: Final = "agent-breaks-"
_SHIFT: Final[dict[Arm, float]] = {"stock": -0.12, "off": 0.0, "idle": 0.12}


def page_html(figures: Figures, verdicts: Sequence[Verdict], title: str) -> str:
    sections = [_time(figures), _work(figures), _figures(figures), _targets(verdicts)]
    body = framed(
        "agent-breaks",
        title,
        [[section.link(_PREFIX) for section in sections]],
        [section.render(_PREFIX) for section in sections],
        "Measured on a real server; every arm replays the same sessions. “-” is not measured.",
    )
    return document(title, body, style_of("sembench.report"), "sembench agent-breaks")


def _offsets(figures: Figures) -> dict[tuple[str, int], int]:
    """How many turns after the break each turn is; sessions that break once only."""
    broken = {
        reading.session: reading.turn
        for reading in figures.readings
        if reading.since_break == 0 and reading.kind not in (EVERY_TURN, OTHER_TENANT)
    }
    return {
        (reading.session, reading.turn): reading.turn - broken[reading.session]
        for reading in figures.readings
        if reading.session in broken and not reading.is_first
    }


def ttft_chart(figures: Figures) -> Chart | None:
    offsets = _offsets(figures)
    layers: list[Layer] = []
    rows: list[tuple[str, ...]] = []
    for arm in figures.arms:
        groups: dict[int, list[Reading]] = {}
        for reading in figures.readings:
            offset = offsets.get((reading.session, reading.turn))
            if reading.arm == arm and offset is not None:
                groups.setdefault(offset, []).append(reading)
        spreads = {offset: Quartiles.of([r.ttft_ms for r in own]) for offset, own in sorted(groups.items())}
        known = {offset: spread for offset, spread in spreads.items() if spread is not None}
        points = tuple((offset + _SHIFT[arm], spread.median) for offset, spread in known.items())
        marks = tuple(
            Whisker(
                offset + _SHIFT[arm],
                spread.median,
                spread.low,
                spread.high,
                f"{NAMES[arm]}, turn {offset:+d}: {spread.median:.0f} ms, n {spread.n}",
            )
            for offset, spread in known.items()
        )
        layers += [Curve("", TONES[arm], points), Whiskers(NAMES[arm], TONES[arm], marks)]
        rows += [
            (NAMES[arm], f"{offset:+d}", str(s.n), f"{s.median:.0f}", f"{s.low:.0f}", f"{s.high:.0f}")
            for offset, s in known.items()
        ]
    if not rows:
        return None
    columns = [int(row[1]) for row in rows]
    values = [float(cell) for row in rows for cell in row[3:] if float(cell) > 0]
    return Chart(
        "ttft",
        "Time to first token around the break",
        _message(figures),
        linear_axis("turns since the break", min(columns) - 0.3, max(columns) + 0.3, lambda value: f"{value:g}"),
        log_axis("TTFT (log)", values, tick_ms),
        tuple(layers),
        DataTable(("arm", "turn", "n", "median ms", "quartile 1", "quartile 3"), tuple(rows)),
        "Whiskers are quartiles. First turns of a session are cold on every arm and left out.",
    )


def _message(figures: Figures) -> str:
    parts = []
    for arm in figures.arms:
        spread = figures.ttft(arm, "break")
        after = figures.ttft(arm, "next")
        if spread is not None and after is not None:
            parts.append(f"{NAMES[arm]} {spread.median:.0f} ms, then {after.median:.0f} ms")
    return f"Median of the break and of the turn after it: {'; '.join(parts)}." if parts else "No session has a break."


def pairs_chart(figures: Figures) -> Chart | None:
    """Every break turn: stock's TTFT against ours, by arm."""
    stock = {(r.session, r.turn): r for r in figures.at("stock", "break")}
    layers: list[Layer] = []
    rows: list[tuple[str, ...]] = []
    values: list[float] = []
    for arm in [arm for arm in figures.arms if arm != "stock"]:
        dots = []
        for reading in figures.at(arm, "break"):
            base = stock.get((reading.session, reading.turn))
            if base is None:
                continue
            label = f"{reading.kind}, {reading.prompt_tokens} tokens: {base.ttft_ms:.0f} ms, {reading.ttft_ms:.0f} ms"
            dots.append(Dot(base.ttft_ms, reading.ttft_ms, label))
            values += [base.ttft_ms, reading.ttft_ms]
        if dots:
            layers.append(Dots(NAMES[arm], TONES[arm], tuple(dots)))
            ratio = median(dot.x / dot.y for dot in dots)
            rows.append((NAMES[arm], str(len(dots)), f"{ratio:.2f}x"))
    if not rows:
        return None
    x, y = log_axis("stock TTFT (log)", values, tick_ms), log_axis("TTFT with the connector (log)", values, tick_ms)
    ends = (max(x.low, y.low), min(x.high, y.high))
    equal = Curve("", "muted", tuple((end, end) for end in ends), dashed=True)
    message = ", ".join(f"{name}: median {ratio} over {n} turns" for name, n, ratio in rows)
    return Chart(
        "pairs",
        "Every break turn: stock against ours",
        f"Stock over ours, {message}. Points below the line are faster.",
        x,
        y,
        (equal, *layers),
        DataTable(("arm", "turns", "stock over ours"), tuple(rows)),
    )


def _time(figures: Figures) -> Section:
    charts = [chart for chart in (ttft_chart(figures), pairs_chart(figures)) if chart is not None]
    drawn = (columns(*(figure(chart, _PREFIX) for chart in charts)),)
    lead = f"{len(figures.sessions)} recorded agent sessions, each replayed on every arm."
    return Section("time", "Time to first token", lead, drawn, tuple(charts))


def _work(figures: Figures) -> Section:
    arms = figures.arms
    names = tuple(NAMES[arm] for arm in arms)
    before = [figures.computed_per_session(arm, lambda reading: reading.prefill_tokens) for arm in arms]
    total = [figures.computed_per_session(arm) for arm in arms]
    bars = (
        Bars(
            "before answers",
            "cold",
            tuple(Bar(row, end, "", f"{names[row]}: {end:,.0f}") for row, end in enumerate(before)),
        ),
        Bars(
            "in think time",
            "reuse",
            tuple(
                Bar(row, end, f"{end:,.0f}", f"{names[row]}: {end - before[row]:,.0f}", start=before[row])
                for row, end in enumerate(total)
            ),
        ),
    )
    chart = Chart(
        "work",
        "Prompt tokens computed per session",
        "; ".join(f"{name} {end:,.0f}" for name, end in zip(names, total, strict=True)) + " in total.",
        linear_axis("tokens", 0.0, max([*total, 1.0]), lambda value: f"{value:,.0f}"),
        category_axis(names),
        bars,
        DataTable(
            ("arm", "before answers", "in think time"),
            tuple((n, f"{b:,.0f}", f"{t - b:,.0f}") for n, b, t in zip(names, before, total, strict=True)),
        ),
        "Think time: repairs and isolated prefills, while no request runs.",
    )
    return Section("work", "Work", "", (columns(figure(chart, _PREFIX)),), (chart,))


def _figures(figures: Figures) -> Section:
    cards = tuple(card(each.title, table(DataTable(each.columns, each.rows)), *each.notes) for each in tables(figures))
    return Section("figures", "Figures", "", cards)


def _targets(verdicts: Sequence[Verdict]) -> Section:
    rows = tuple(
        (
            each.name,
            f"{each.comparison} {each.limit:g} {each.unit}".rstrip(),
            "-" if each.measured is None else f"{each.measured:.4g}",
            each.word,
        )
        for each in verdicts
    )
    data = DataTable(("what", "target", "measured", "verdict"), rows)
    return Section("targets", "Targets", "", (card("Targets and laws", table(data, text_columns=(3,))),))
