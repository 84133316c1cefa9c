"""Section: the four questions, each answered by a figure, and the funnel with the details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sembase.onepage.formats import NOT_MEASURED, fraction, plural
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, chip
from sembench.report.formats import percent, ratio
from sembench.report.funnel import STAGES, FunnelRow, Stage, StageFigure, funnel_of
from sembench.report.headline import blended, reused_only
from sembench.report.subject import Subject


@dataclass(frozen=True, slots=True)
class FunnelSection(Section):
    funnel: tuple[FunnelRow, ...] = ()


def section(subject: Subject) -> FunnelSection:
    rows = funnel_of(subject.rows)
    lead = (
        "Four questions need four numbers: a match is not reuse, and reuse is not a gain. "
        "Stages are measured independently, so a later one may exceed an earlier one."
    )
    answers = tag("ol", *(_question(*each) for each in _answers(subject)), class_="questions")
    return FunnelSection("questions", "Four questions", lead, (answers, _funnel(rows)), funnel=rows)


def _question(question: str, answer: str, detail: str, evidence: str) -> Safe:
    absent = " absent" if answer == NOT_MEASURED else ""
    return tag(
        "li",
        tag("p", question, class_="question"),
        tag("p", answer, class_=f"answer{absent}"),
        tag("p", detail, " ", chip(evidence) if evidence and not absent else None, class_="detail"),
    )


def _answers(subject: Subject) -> tuple[tuple[str, str, str, str], ...]:
    confirmed = _rate(subject, "backend_confirmed_block_rate")
    reported = [row for row in subject.rows if row.backend is not None and not row.negative_control]
    reused = sum(bool(row.backend and row.backend.reused_tokens) for row in reported)
    per_request = f"in {reused:,} of {plural(len(reported), 'reported request')}" if reported else ""
    return (
        (
            "Did an exact cache already cover the request?",
            percent(_value(subject, "exact_prefix_block_rate")),
            _of_blocks(_rate(subject, "exact_prefix_block_rate"), "are an exact prefix"),
            "offline",
        ),
        (
            "Did a planner find reusable donor spans?",
            percent(_value(subject, "semantic_eligible_block_rate")),
            _of_blocks(_rate(subject, "semantic_eligible_block_rate"), "are eligible: a plan, not reuse"),
            "offline",
        ),
        (
            "Did the backend really reuse donor KV?",
            percent(_value(subject, "backend_confirmed_block_rate")),
            "No backend reported on any request." if confirmed == NOT_MEASURED else _confirmed(confirmed, per_request),
            "backend confirmed",
        ),
        _fourth(subject),
    )


def _of_blocks(blocks: str, what: str) -> str:
    return "No blocks were counted." if blocks == NOT_MEASURED else f"of all blocks ({blocks}) {what}"


def _confirmed(blocks: str, per_request: str) -> str:
    return f"of the reported blocks ({blocks} blocks{', ' + per_request if per_request else ''})"


def _fourth(subject: Subject) -> tuple[str, str, str, str]:
    question = "Did TTFT improve and the answer hold, while negative controls stayed cold?"
    speed = blended(subject)
    if speed is None:
        return question, NOT_MEASURED, "No clean pairs of a cold and a warm request.", ""
    only = reused_only(subject)
    quality = f"quality kept: {percent(_value(subject, 'quality_pass_rate'))}"
    if (parts := _rate(subject, "quality_pass_rate")) != NOT_MEASURED:
        quality += f" ({parts})"
    negative = _rate(subject, "negative_control_backend_confirmed_rate")
    shown = f"reused only {only.shown(ratio)}, n = {only.n:,}" if only else f"reused only: {NOT_MEASURED}"
    detail = (
        f"blended median TTFT speedup over {plural(speed.n, 'clean pair')} ({shown}); {quality}; "
        f"blocks of negative controls confirmed: {negative}"
    )
    return question, speed.shown(ratio), detail, "measured live"


def _value(subject: Subject, metric: str) -> float | None:
    value = subject.aggregate.get(metric)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rate(subject: Subject, metric: str) -> str:
    parts: dict[str, Any] = subject.aggregate.get("parts", {}).get(metric) or {}
    return fraction(parts.get("numerator"), parts.get("denominator"))


def _funnel(rows: Sequence[FunnelRow]) -> Safe:
    units = [_unit([row.stages[i] for row in rows]) for i in range(len(STAGES))]
    head = [tag("th", stage.title, tag("small", unit), scope="col") for stage, unit in zip(STAGES, units, strict=True)]
    body = [
        tag(
            "tr",
            tag("th", row.name, tag("small", plural(row.requests, "request")), scope="row"),
            *(_cell(stage, figure) for stage, figure in zip(STAGES, row.stages, strict=True)),
        )
        for row in rows
    ]
    whole = tag(
        "table",
        tag("caption", "Funnel per transform: fraction of blocks or tokens, with numerator / denominator"),
        tag("thead", tag("tr", tag("th", "transform", scope="col"), *head)),
        tag("tbody", *body),
        class_="funnel",
    )
    meanings = [join for stage in STAGES for join in (tag("dt", stage.title), tag("dd", stage.meaning))]
    return tag(
        "div",
        tag("h3", "Funnel per transform"),
        whole,
        tag("details", tag("summary", "What the stages mean"), tag("dl", *meanings, class_="meanings")),
        class_="card",
    )


def _unit(figures: Sequence[StageFigure | None]) -> str:
    return " or ".join(dict.fromkeys(found.unit for found in figures if found is not None)) or "-"


def _cell(stage: Stage, found: StageFigure | None) -> Safe:
    name = tag("span", stage.title, class_="stage")
    if found is None:
        return tag("td", name, tag("span", NOT_MEASURED, class_="absent"), class_=stage.key)
    value = found.figure.value
    bar = tag(
        "svg",
        tag("rect", width=100, height=6, class_="track"),
        tag("rect", width=round(100 * min(1.0, max(0.0, value)), 2), height=6, class_="fill"),
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    parts = fraction(found.figure.numerator, found.figure.denominator)
    tooltip = f"{stage.title}: {parts} {found.unit}, counted by the {found.source}"
    return tag(
        "td",
        name,
        tag("b", percent(value)),
        bar,
        tag("small", parts),
        class_=stage.key,
        title=tooltip,
    )
