"""Parts of a page that every section is made of: figures with their table, tiles, notes, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from semantic_kv.report.chart import Chart, DataTable, named
from semantic_kv.report.formats import NOT_MEASURED
from semantic_kv.report.frame import Width, frame_of
from semantic_kv.report.markup import Content, Safe, tag
from semantic_kv.report.svg import svg, swatch

_WIDTHS: Final[tuple[Width, ...]] = ("wide", "narrow")


@dataclass(frozen=True, slots=True)
class Section:
    """``lead`` says in a sentence or two what the section found."""

    key: str
    title: str
    lead: str
    body: tuple[Safe, ...]

    def render(self, prefix: str) -> Safe:
        lead = tag("p", self.lead, class_="lead") if self.lead else None
        return tag("section", tag("h2", self.title), lead, *self.body, id=f"{prefix}{self.key}")


def figure(chart: Chart, prefix: str) -> Safe:
    identity = f"{prefix}{chart.key}"
    drawings = [
        tag("div", svg(chart, frame_of(chart, width), f"{identity}-{width}"), class_=f"drawing {width}")
        for width in _WIDTHS
    ]
    legend = [tag("span", swatch(layer), layer.name, class_="entry") for layer in named(chart)]
    return tag(
        "figure",
        tag("figcaption", tag("h3", chart.title), tag("p", chart.message, class_="message")),
        tag("div", *legend, class_="legend") if legend else None,
        *drawings,
        tag("p", chart.note, class_="note") if chart.note else None,
        tag("details", tag("summary", "Figures as a table"), table(chart.table)),
        class_="card",
    )


def table(data: DataTable, *, text_columns: Sequence[int] = (), marks: Sequence[str] = ()) -> Safe:
    """Figures to the right, text to the left; ``marks`` are classes of rows; wide tables scroll in their own box."""
    left = {0, *text_columns}
    head = [tag("th", name, class_=None if i in left else "n", scope="col") for i, name in enumerate(data.columns)]
    rows = [
        tag("tr", *(_cell(text, i in left) for i, text in enumerate(row)), class_=marks[at] or None if marks else None)
        for at, row in enumerate(data.rows)
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="table")


def heat_table(corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[str, int, str]]]]) -> Safe:
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
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="heat")
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="table")


def _cell(text: str, is_text: bool) -> Safe:
    classes = [] if is_text else ["n"]
    if text == NOT_MEASURED:
        classes.append("absent")
    return tag("td", text, class_=" ".join(classes) or None)


def missing(title: str, why: str) -> Safe:
    """In the place of a chart: that there is nothing to draw is a finding, too."""
    return tag("div", tag("h3", title), tag("p", tag("strong", "Nothing to show."), " ", why), class_="card missing")


def columns(*cards: Content) -> Safe:
    return tag("div", *cards, class_="columns")


def card(title: str, *content: Content) -> Safe:
    return tag("div", tag("h3", title), *content, class_="card")


def tile(title: str, value: str, detail: str, state: str = "") -> Safe:
    absent = " absent" if value == NOT_MEASURED else ""
    return tag(
        "div",
        tag("dt", title),
        tag("dd", tag("span", value, class_=f"figure{absent}"), tag("span", detail, class_="detail")),
        class_=f"tile {state}".strip(),
    )


def chip(text: str, state: str = "") -> Safe:
    return tag("span", text, class_=f"chip {state}".strip())
