"""Section: the outcomes of the requests, and the reasons for declined reuse."""

from __future__ import annotations

from collections import Counter

from sembase.onepage.chart import Axis, Bar, Bars, Chart, DataTable
from sembase.onepage.formats import plural
from sembase.onepage.section import Section, columns, figure, missing
from sembase.onepage.ticks import category_axis
from sembench.report.formats import percent
from sembench.report.subject import Subject
from sembench.report.tones import Tone


def section(subject: Subject) -> Section:
    outcomes, source = _outcomes(subject)
    reasons, reason_source = _reasons(subject)
    charts = []
    cards = []
    for key, title, found, summary, tone, why in (
        (
            "outcomes",
            "Outcomes",
            outcomes,
            source,
            "accent",
            "There is no report from a backend, a router or a planner.",
        ),
        (
            "declines",
            "Why nothing was reused",
            reasons,
            reason_source,
            "miss",
            "No request was declined, or there is no report.",
        ),
    ):
        if found:
            chart = _bars(key, title, found, summary, "accent" if tone == "accent" else "miss")
            charts.append(chart)
            cards.append(figure(chart, subject.prefix))
        else:
            cards.append(missing(title, why))
    lead = "Declining is normal: the engine then prefills as usual. The reason says what prevented reuse."
    return Section("outcomes", "Outcomes and decline reasons", lead, (columns(*cards),), tuple(charts))


def _outcomes(subject: Subject) -> tuple[Counter[str], str]:
    if reported := [row.backend.outcome for row in subject.rows if row.backend is not None]:
        return Counter(reported), f"Reported by the engine for {plural(len(reported), 'request')}"
    if routed := [row.route_outcome for row in subject.rows if row.route_outcome is not None]:
        return Counter(routed), f"From the route headers of {plural(len(routed), 'request')}; no engine report"
    planned = ["planned, not served" if row.plan.planned_tokens else "declined" for row in subject.rows if row.plan]
    return Counter(planned), f"From the offline planner for {plural(len(planned), 'request')}; no engine was involved"


def _reasons(subject: Subject) -> tuple[Counter[str], str]:
    if any(row.backend is not None for row in subject.rows):
        found = [row.backend.decline_reason for row in subject.rows if row.backend and row.backend.decline_reason]
        return Counter(found), f"Reported by the engine for {plural(len(found), 'request')}"
    found = [row.plan.decline_reason for row in subject.rows if row.plan and row.plan.decline_reason]
    return Counter(found), f"Reported by the offline planner for {plural(len(found), 'request')}"


def _bars(key: str, title: str, found: Counter[str], summary: str, tone: Tone) -> Chart:
    names = [name for name, _ in found.most_common()]
    total = sum(found.values())
    bars = tuple(
        Bar(i, float(found[name]), f"{found[name]:,} · {percent(found[name] / total)}", f"{name}: {found[name]:,}")
        for i, name in enumerate(names)
    )
    return Chart(
        key,
        title,
        f"{summary}.",
        Axis("", 0.0, float(max(found.values()))),
        category_axis(names),
        (Bars("", tone, bars),),
        DataTable(
            ("name", "requests", "fraction"), tuple((n, f"{found[n]:,}", percent(found[n] / total)) for n in names)
        ),
    )
