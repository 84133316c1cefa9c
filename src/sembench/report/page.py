"""All sections of one page, and the page around them: no script, no request to anywhere, held by its own CSP."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from sembench import __version__
from sembench.report import controls, costs, latency, lengths, outcomes, provenance, quality, questions, verdict
from sembench.report.chart import Chart
from sembench.report.formats import plural
from sembench.report.funnel import FunnelRow
from sembench.report.markup import Safe, tag
from sembench.report.section import Section, chip
from sembench.report.subject import Subject


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    body: Safe
    charts: tuple[tuple[str, Chart], ...]
    """Every chart with the prefix of the result it belongs to."""
    funnels: tuple[tuple[str, tuple[FunnelRow, ...]], ...] = ()

    def html(self) -> str:
        style = files("sembench.report").joinpath("page.css").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content=f"sembench {__version__}"),
            tag("title", self.title),
            tag("style", Safe(style)),
        )
        return f"<!doctype html>\n{tag('html', head, tag('body', self.body), lang='en')}\n"


@dataclass(frozen=True, slots=True)
class Chapter:
    """One result, or what is about several of them."""

    title: str
    prefix: str
    facts: tuple[Safe, ...]
    sections: tuple[Section, ...]


def chapter_of(subject: Subject) -> Chapter:
    makers = (verdict, questions, latency, lengths, quality, controls, outcomes, costs, provenance)
    return Chapter(_title(subject), subject.prefix, _facts(subject), tuple(maker.section(subject) for maker in makers))


def page_of(chapters: Sequence[Chapter], title: str) -> Page:
    several = len(chapters) > 1
    nav = tag("nav", *(_links(chapter, several) for chapter in chapters), aria_label="sections")
    body = tag(
        "div",
        tag("header", tag("p", "SemBench report", class_="eyebrow"), tag("h1", title), nav, class_="top"),
        tag("main", *(_chapter(chapter, several) for chapter in chapters)),
        tag(
            "footer",
            tag(
                "p",
                f"Written by sembench {__version__}. “Not measured” is not zero. Reuse is only what a backend "
                "confirmed. Intervals are 95 %, by seeded bootstrap over items.",
            ),
        ),
        class_="page",
    )
    charts = tuple((chapter.prefix, chart) for chapter in chapters for s in chapter.sections for chart in s.charts)
    funnels = tuple((chapter.prefix, s.funnel) for chapter in chapters for s in chapter.sections if s.funnel)
    return Page(title, body, charts, funnels)


def _chapter(chapter: Chapter, several: bool) -> Safe:
    heading = tag("h1", chapter.title, class_="chapter", id=f"{chapter.prefix}top") if several else None
    facts = tag("p", *chapter.facts, class_="facts") if chapter.facts else None
    return tag("article", heading, facts, *(section.render(chapter.prefix) for section in chapter.sections))


def _links(chapter: Chapter, several: bool) -> Safe:
    name = tag("b", chapter.title) if several else None
    links = (tag("a", section.title, href=f"#{chapter.prefix}{section.key}") for section in chapter.sections)
    return tag("p", name, *links)


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
