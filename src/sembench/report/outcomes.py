"""Section: the outcomes of the requests, and why nothing was reused if nothing was."""

from __future__ import annotations

from collections import Counter

from onepage.chart import Axis, Bar, Bars, Chart, DataTable
from onepage.formats import plural
from onepage.section import Section, columns, figure, missing
from onepage.ticks import category_axis
from sembench.report.formats import percent
from sembench.report.subject import Subject
from sembench.report.tones import Tone


def section(subject: Subject) -> Section:
    outcomes, source = _outcomes(subject)
    reasons, reason_source = _reasons(subject)
    charts = []
    cards = []
    for key, title, found, said, tone, why in (
        ("outcomes", "Outcomes", outcomes, source, "accent", "Neither a backend, a route nor a planner said anything."),
        (
            "declines",
            "Why nothing was reused",
            reasons,
            reason_source,
            "miss",
            "No request was declined, or none was reported on.",
        ),
    ):
        if found:
            chart = _bars(key, title, found, said, "accent" if tone == "accent" else "miss")
            charts.append(chart)
            cards.append(figure(chart, subject.prefix))
        else:
            cards.append(missing(title, why))
    lead = "A refusal is a value: cold prefill is normal, and the reason says what it would take to change it."
    return Section("outcomes", "Outcomes and decline reasons", lead, (columns(*cards),), tuple(charts))


def _outcomes(subject: Subject) -> tuple[Counter[str], str]:
    if reported := [row.backend.outcome for row in subject.rows if row.backend is not None]:
        return Counter(reported), f"As the engine reported them for {plural(len(reported), 'request')}"
    if routed := [row.route_outcome for row in subject.rows if row.route_outcome is not None]:
        return Counter(routed), f"As the route headers of {plural(len(routed), 'request')} say; no engine report"
    planned = ["planned, not served" if row.plan.planned_tokens else "declined" for row in subject.rows if row.plan]
    return Counter(planned), f"The offline planner's answers to {plural(len(planned), 'request')}; no engine was asked"


def _reasons(subject: Subject) -> tuple[Counter[str], str]:
    if any(row.backend is not None for row in subject.rows):
        found = [row.backend.decline_reason for row in subject.rows if row.backend and row.backend.decline_reason]
        return Counter(found), f"Given by the engine for {plural(len(found), 'request')}"
    found = [row.plan.decline_reason for row in subject.rows if row.plan and row.plan.decline_reason]
    return Counter(found), f"Given by the offline planner for {plural(len(found), 'request')}"


def _bars(key: str, title: str, found: Counter[str], said: str, tone: Tone) -> Chart:
    names = [name for name, _ in found.most_common()]
    total = sum(found.values())
    bars = tuple(
        Bar(i, float(found[name]), f"{found[name]:,} · {percent(found[name] / total)}", f"{name}: {found[name]:,}")
        for i, name in enumerate(names)
    )
    return Chart(
        key,
        title,
        f"{said}.",
        Axis("", 0.0, float(max(found.values()))),
        category_axis(names),
        (Bars("", tone, bars),),
        DataTable(("name", "requests", "share"), tuple((n, f"{found[n]:,}", percent(found[n] / total)) for n in names)),
    )
