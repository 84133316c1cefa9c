"""All sections of one page: a chapter per result, and links to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sembase.onepage.chart import Chart
from sembase.onepage.formats import plural
from sembase.onepage.markup import Safe, join, tag
from sembase.onepage.page import document, framed, style_of
from sembase.onepage.section import Section, chip
from sembench import __version__
from sembench.report import (
    answers,
    controls,
    costs,
    latency,
    lengths,
    outcomes,
    provenance,
    quality,
    questions,
    verdict,
)
from sembench.report.funnel import FunnelRow
from sembench.report.questions import FunnelSection
from sembench.report.subject import Subject

_FOOTER: Final = (
    f"Written by kvmend bench {__version__}. “Not measured” is not zero. Only what a backend "
    "confirmed is called reuse. Intervals are 95 %, by seeded bootstrap over items."
)


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    body: Safe
    charts: tuple[tuple[str, Chart], ...]
    """Every chart with the prefix of the result it belongs to."""
    funnels: tuple[tuple[str, tuple[FunnelRow, ...]], ...] = ()

    def html(self) -> str:
        return document(self.title, self.body, style_of("sembench.report"), f"kvmend {__version__}")


@dataclass(frozen=True, slots=True)
class Chapter:
    """One result, or the sections about several of them."""

    title: str
    prefix: str
    facts: tuple[Safe, ...]
    sections: tuple[Section, ...]


def chapter_of(subject: Subject) -> Chapter:
    makers = (verdict, questions, latency, lengths, quality, answers, controls, outcomes, costs, provenance)
    return Chapter(_title(subject), subject.prefix, _facts(subject), tuple(maker.section(subject) for maker in makers))


def page_of(chapters: Sequence[Chapter], title: str) -> Page:
    several = len(chapters) > 1
    links = (_links(chapter, several) for chapter in chapters)
    body = framed("kvmend bench report", title, links, (_chapter(chapter, several) for chapter in chapters), _FOOTER)
    charts = tuple((chapter.prefix, chart) for chapter in chapters for s in chapter.sections for chart in s.charts)
    funnels = tuple(
        (chapter.prefix, s.funnel)
        for chapter in chapters
        for s in chapter.sections
        if isinstance(s, FunnelSection) and s.funnel
    )
    return Page(title, body, charts, funnels)


def _chapter(chapter: Chapter, several: bool) -> Safe:
    heading = tag("h1", chapter.title, class_="chapter", id=f"{chapter.prefix}top") if several else None
    facts = tag("p", *chapter.facts, class_="facts") if chapter.facts else None
    return tag("article", heading, facts, *(section.render(chapter.prefix) for section in chapter.sections))


def _links(chapter: Chapter, several: bool) -> Safe:
    name = tag("b", chapter.title) if several else None
    return join((name, *(section.link(chapter.prefix) for section in chapter.sections)))


def _title(subject: Subject) -> str:
    return subject.name.removesuffix(".json")


def _facts(subject: Subject) -> tuple[Safe, ...]:
    result = subject.result
    engine = result["engine"] if isinstance(result["engine"], dict) else {}
    name = " ".join(str(engine[key]) for key in ("name", "engine", "version") if engine.get(key))
    model = engine.get("model") or result["config"].get("model")
    facts = [
        chip(subject.evidence.replace("_", " "), "none" if subject.evidence == "offline" else "accent"),
        tag("span", plural(len(subject.rows), "request")),
        tag("span", f"manifest {result['run'].get('manifest')}"),
        tag("span", name) if name else tag("span", "no engine"),
        tag("span", f"model {model}") if model else None,
        tag("span", str(result["created_at_utc"]).replace("T", " ").replace("+00:00", " UTC")),
    ]
    return tuple(fact for fact in facts if fact is not None)
