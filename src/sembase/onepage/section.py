"""Parts of a page that every section is made of: figures with their table, tiles, notes, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sembase.onepage.chart import Chart, DataTable, named
from sembase.onepage.formats import NOT_MEASURED
from sembase.onepage.frame import Width, frame_of
from sembase.onepage.markup import Content, Safe, tag
from sembase.onepage.svg import svg, swatch

_WIDTHS: Final[tuple[Width, ...]] = ("wide", "narrow")


@dataclass(frozen=True, slots=True)
class Section:
    """``lead`` states the section's finding in a sentence or two."""

    key: str
    title: str
    lead: str
    body: tuple[Safe, ...]
    charts: tuple[Chart, ...] = ()

    def render(self, prefix: str) -> Safe:
        lead = tag("p", self.lead, class_="lead") if self.lead else None
        return tag("section", tag("h2", self.title), lead, *self.body, id=f"{prefix}{self.key}")

    def link(self, prefix: str) -> Safe:
        return tag("a", self.title, href=f"#{prefix}{self.key}")


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


def table(
    data: DataTable, *, text_columns: Sequence[int] = (), kind: str | None = None, row_kinds: Sequence[str] = ()
) -> Safe:
    """Figures to the right, text to the left; ``kind`` and ``row_kinds`` are classes of the table and of its rows."""
    left = {0, *text_columns}
    head = [tag("th", name, class_=None if i in left else "n", scope="col") for i, name in enumerate(data.columns)]
    kinds = row_kinds or [""] * len(data.rows)
    rows = [
        tag("tr", *(_cell(text, i in left) for i, text in enumerate(row)), class_=row_kind or None)
        for row, row_kind in zip(data.rows, kinds, strict=True)
    ]
    return scrolling(tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_=kind))


def scrolling(whole: Safe) -> Safe:
    """A wide table scrolls in a box of its own."""
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="table")


def _cell(text: str, is_text: bool) -> Safe:
    classes = [] if is_text else ["n"]
    if text == NOT_MEASURED:
        classes.append("absent")
    return tag("td", text, class_=" ".join(classes) or None)


def missing(title: str, why: str, word: str = NOT_MEASURED.capitalize()) -> Safe:
    """Replaces a chart that has nothing to draw, and says so."""
    return tag("div", tag("h3", title), tag("p", tag("strong", f"{word}."), " ", why), class_="card missing")


def columns(*cards: Content) -> Safe:
    return tag("div", *cards, class_="columns")


def card(title: str, *content: Safe | str | None) -> Safe:
    """Plain text becomes a paragraph."""
    parts = [tag("p", part, class_="message") if part and not isinstance(part, Safe) else part for part in content]
    return tag("div", tag("h3", title), *parts, class_="card")


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
