"""Studies -> one HTML page: no script, no request to anywhere, held by its own Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from itertools import chain

from semantic_kv.experiment.study import Study
from semantic_kv.experiment.verdict import MODELLED, Verdict, verdict_of
from semantic_kv.report import sections
from semantic_kv.report.chart import Chart
from semantic_kv.report.formats import plural
from semantic_kv.report.markup import Safe, tag
from semantic_kv.report.overview import overview_section
from semantic_kv.report.section import Section, chip


def page_html(studies: Sequence[Study], title: str, facts: dict[str, str], observed: Chart | None = None) -> str:
    """``observed`` is the chart of a replay against what a server did; it goes to the only study."""
    several = len(studies) > 1
    chapters = [
        _chapter(study, f"s{at}-" if several else "", several, facts, observed) for at, study in enumerate(studies)
    ]
    overview = [overview_section(studies)] if several else []
    links = [*(_link("", section) for section in overview), *chain.from_iterable(chapter[0] for chapter in chapters)]
    body = tag(
        "div",
        tag(
            "header",
            tag("p", "semantic_kv report", class_="eyebrow"),
            tag("h1", title),
            tag("nav", *links, aria_label="sections"),
            class_="top",
        ),
        tag("main", *(section.render("") for section in overview), *(chapter[1] for chapter in chapters)),
        tag("footer", tag("p", f"{MODELLED} Intervals are 95 %, by seeded bootstrap. “Not measured” is not zero.")),
        class_="page",
    )
    return _document(title, body)


def _chapter(
    study: Study, prefix: str, several: bool, facts: dict[str, str], observed: Chart | None
) -> tuple[list[Safe], Safe]:
    verdict = verdict_of(study)
    made = [section for section in _sections(study, verdict, prefix, facts) if section is not None]
    if observed is not None:
        made.insert(1, sections.observed_section(observed, prefix))
    heading = tag("h1", study.config.experiment, class_="chapter", id=f"{prefix}top") if several else None
    article = tag("article", heading, _facts(study), *(section.render(prefix) for section in made))
    if several:
        return [tag("a", study.config.experiment, href=f"#{prefix}top")], article
    return [_link(prefix, section) for section in made], article


def _sections(study: Study, verdict: Verdict, prefix: str, facts: dict[str, str]) -> Sequence[Section | None]:
    return (
        sections.verdict_section(study, verdict),
        sections.policies_section(study, prefix),
        sections.ablation_section(study),
        sections.curve_section(study, prefix),
        sections.inside_section(study, prefix),
        sections.tenants_section(study),
        sections.provenance_section(study, facts),
    )


def _facts(study: Study) -> Safe:
    first = study.traces[0]
    said = [
        chip("TTFT modelled", "warn"),
        tag("span", plural(first.requests, "request")),
        tag("span", plural(first.references, "block reference")),
        tag("span", plural(len(study.config.seeds), "seed")),
        tag("span", plural(len(study.config.choices()), "policy", "policies")),
    ]
    return tag("p", *said, class_="facts")


def _link(prefix: str, section: Section) -> Safe:
    return tag("a", section.title, href=f"#{prefix}{section.key}")


def _document(title: str, body: Safe) -> str:
    style = files("semantic_kv.report").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Safe(style)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"
