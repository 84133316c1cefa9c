"""The estimate as one self-contained page: no scripts, no requests, light and dark, phone and desktop."""

from __future__ import annotations

from typing import Final

from sembase.onepage.chart import Bar, Bars, Chart, Curve, DataTable
from sembase.onepage.markup import Safe, tag
from sembase.onepage.page import document, framed, style_of
from sembase.onepage.section import Section, card, chip, columns, figure, table, tile
from sembase.onepage.ticks import category_axis, linear_axis, log_axis
from semblend import __version__
from semestimate.cost import price_on
from semestimate.curve import CurvePoint
from semestimate.hardware import DEVICES, MODELS
from semestimate.owners import OwnerCount
from semestimate.report import (
    Estimate,
    assumptions,
    class_rows,
    compact,
    enough_cache,
    missed_rows,
    money_text,
    percent,
    size_text,
    time_text,
)
from semestimate.verdict import Decision

_STATES: Final = {Decision.TRY: "good", Decision.NO: "bad", Decision.PROMPTS_FIRST: "warn", Decision.UNKNOWN: ""}
_FOOTER: Final = "Estimated from recorded traffic. No model ran, and no figure was measured on a GPU."


def page_html(estimate: Estimate) -> str:
    title = f"Estimate: {', '.join(estimate.figures.traces)}"
    sections = [section for section in _sections(estimate) if section is not None]
    links = [section.link("") for section in sections]
    body = framed("kvmend estimate", title, [links], [_facts(estimate), *(s.render("") for s in sections)], _FOOTER)
    return document(title, body, style_of("semestimate"), f"kvmend {__version__}")


def _sections(estimate: Estimate) -> tuple[Section | None, ...]:
    return (
        _verdict(estimate),
        _advice(estimate),
        _missed(estimate),
        _anywhere(estimate),
        _owners(estimate),
        _cache(estimate),
        _time(estimate),
        _notes(estimate),
    )


def _facts(estimate: Estimate) -> Safe:
    figures = estimate.figures
    facts = [f"{figures.requests:,} requests", f"{compact(figures.prompt.tokens)} prompt tokens"]
    facts += [f"{figures.sessions:,} sessions"] if figures.sessions else []
    facts += [f"{figures.tenants:,} tenants"] if figures.tenants > 1 else []
    return tag("p", chip("estimated, not measured", "warn"), *(tag("span", fact) for fact in facts), class_="facts")


def _verdict(estimate: Estimate) -> Section:
    figures, verdict = estimate.figures, estimate.verdict
    ruling = tag(
        "div",
        tag("p", verdict.decision.value.capitalize(), class_="headline"),
        tag("ul", *(tag("li", reason) for reason in verdict.reasons)),
        class_=f"ruling {_STATES[verdict.decision]}".strip(),
    )
    total = max(1, figures.prompt.tokens)
    found, served = figures.anywhere.found_work().tokens, figures.anywhere.served_work().tokens
    tiles = [tile("Prefix caching", percent(figures.prefix_share), "of the prompt tokens, at most")]
    if figures.sees_any_position:
        tiles += [
            tile("Recurs elsewhere", percent(found / total), "runs of 64 tokens and more"),
            tile("Default gates serve", percent(served / total), "of the prompt tokens", "good" if served else ""),
        ]
    broken = figures.misses.broken_requests()
    tiles.append(tile("Prefix breaks", percent(broken / figures.requests), f"{broken:,} requests"))
    saved = verdict.saved_share
    if saved is not None:
        tiles.append(tile("Prefill time saved", percent(saved), "of what prefix caching leaves, net of loads"))
    return Section("verdict", "Verdict", "", (ruling, tag("dl", *tiles, class_="tiles")))


def _advice(estimate: Estimate) -> Section | None:
    if not estimate.advice:
        return None
    rows = []
    for each in estimate.advice:
        seconds = None if each.saved is None else estimate.price.seconds(each.saved)
        saved = "not known" if each.saved is None else compact(each.saved.tokens)
        took = "not known" if seconds is None else time_text(seconds)
        rows.append((each.change, each.cause.value, f"{each.requests:,}", compact(each.missed.tokens), saved, took))
    heads = ("change", "cause", "requests", "tokens missed", "tokens saved", "prefill saved")
    lead = "A prefix that is kept costs nothing to reuse. These changes come before any new cache."
    return Section(
        "advice",
        "Cheaper first",
        lead,
        (card("Changes to the prompts", table(DataTable(heads, tuple(rows)), text_columns=(1,))),),
    )


def _missed(estimate: Estimate) -> Section:
    rows = missed_rows(estimate)
    data = DataTable(
        ("reason", "requests", "tokens", "of missed", "of all", "tokens per request", "prefill", "cost"),
        tuple(
            (
                row.name,
                f"{row.requests:,}",
                compact(row.tokens),
                percent(row.missed_share),
                percent(row.share),
                compact(row.tokens / max(1, row.requests)),
                time_text(row.seconds),
                money_text(estimate.price, row.seconds) or "no --price",
            )
            for row in rows
        ),
    )
    broken = estimate.figures.misses
    share = broken.broken_tokens() / max(1, estimate.figures.missed.tokens)
    message = f"Prefix breaks cause {percent(share)} of the missed tokens, in {broken.broken_requests():,} requests."
    chart = Chart(
        "missed",
        "Missed tokens by reason",
        message,
        linear_axis(
            "fraction of missed tokens", 0.0, max((row.missed_share for row in rows), default=1.0), percent_tick
        ),
        category_axis([row.name for row in rows], dense=True),
        (
            Bars(
                "missed tokens",
                "break",
                tuple(Bar(at, row.missed_share, percent(row.missed_share), row.name) for at, row in enumerate(rows)),
            ),
        ),
        data,
    )
    return Section(
        "missed",
        "What the prefix misses, and why",
        "Tokens that no prefix cache could serve, by the reason that an earlier prompt did not cover them.",
        (columns(figure(chart, "")), card("In figures", table(data))),
    )


def percent_tick(value: float) -> str:
    return f"{100 * value:g} %"


def _anywhere(estimate: Estimate) -> Section | None:
    rows = class_rows(estimate)
    if not estimate.figures.sees_any_position:
        return None
    data = DataTable(
        ("class", "requests found", "tokens found", "of all", "requests served", "tokens served", "of all"),
        tuple(
            (
                found.name,
                f"{found.requests:,}",
                compact(found.tokens),
                percent(found.share),
                f"{served.requests:,}",
                compact(served.tokens),
                percent(served.share),
            )
            for found, served in rows
        ),
    )
    declined = estimate.figures.anywhere.declined
    reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in sorted(declined.items()))
    lead = (
        "Content that recurs at another position, by the class of all that was found in a request: the classes differ "
        "in how far answers move, so gates and the guard judge them separately."
    )
    body = card(
        "Found, and served by default gates", table(data), f"Requests declined: {reasons}." if reasons else None
    )
    return Section("anywhere", "What reuse at any position adds", lead, (body,))


def _owners(estimate: Estimate) -> Section | None:
    figures = estimate.figures
    cards = [
        card(title, _owner_table(owners))
        for title, owners in (("Tenants", figures.heaviest_tenants), ("Sessions", figures.heaviest_sessions))
        if len(owners) > 1
    ]
    return Section("owners", "Who misses most", "", tuple(cards)) if cards else None


def _owner_table(owners: tuple[OwnerCount, ...]) -> Safe:
    heads = ("name", "requests", "prefix served", "missed", "found", "served", "breaks")
    rows = tuple(
        (
            each.name,
            f"{each.requests:,}",
            percent(each.prefix_tokens / max(1, each.prompt_tokens)),
            compact(each.missed_tokens),
            compact(each.found_tokens),
            compact(each.served_tokens),
            f"{each.broken_requests:,}",
        )
        for each in owners
    )
    return table(DataTable(heads, rows))


def _cache(estimate: Estimate) -> Section | None:
    named = (
        ("prefix", "Prefix cache", "prefix", estimate.figures.prefix_curve),
        ("donors", "Donors: content at any position", "elsewhere", estimate.figures.content_curve),
    )
    figures = [
        figure(_curve(estimate, key, title, tone, points), "") for key, title, tone, points in named if len(points) > 1
    ]
    lead = "An LRU cache of this size would have served this fraction of the prompt tokens."
    return Section("cache", "How much cache it takes", lead, (columns(*figures),)) if figures else None


def _curve(estimate: Estimate, key: str, title: str, tone: str, points: tuple[CurvePoint, ...]) -> Chart:
    enough = enough_cache(points)
    assert enough is not None
    message = (
        f"{size_text(estimate.price, enough.capacity_tokens)} serve {percent(enough.hit_share)}; "
        f"without a limit {percent(points[-1].hit_share)}."
    )
    data = DataTable(
        ("cache size", "served"),
        tuple((size_text(estimate.price, each.capacity_tokens), percent(each.hit_share)) for each in points),
    )
    return Chart(
        f"curve-{key}",
        title,
        message,
        log_axis("cache size, tokens", [float(each.capacity_tokens) for each in points], compact),
        linear_axis("served", 0.0, max(each.hit_share for each in points), percent_tick),
        (Curve(title, tone, tuple((float(each.capacity_tokens), each.hit_share) for each in points)),),
        data,
    )


def _time(estimate: Estimate) -> Section:
    figures, price, verdict = estimate.figures, estimate.price, estimate.verdict
    requests = max(1, figures.requests)
    rows = [("without any cache", price.seconds(figures.prompt)), ("with prefix caching", verdict.prefill_s)]
    if verdict.saved_s is not None:
        rows.append(("with reuse by default gates", verdict.prefill_s - verdict.saved_s))
    if verdict.recovered_s:
        rows.append(("with the changes to the prompts instead", verdict.prefill_s - verdict.recovered_s))
    data = DataTable(
        ("prefill", "all requests", "mean per request", "cost"),
        tuple((name, time_text(s), time_text(s / requests), money_text(price, s) or "no --price") for name, s in rows),
    )
    cards = [card(f"{price.name}{' (predicted)' if price.is_predicted else ''}", table(data))]
    if price.is_predicted and verdict.saved_s is not None:
        cards.append(card("Prefill time saved on other hardware (predicted)", _hardware_table(estimate)))
    return Section("time", "Time and money", "Prefill only: queueing and decoding are not in it.", tuple(cards))


def _hardware_table(estimate: Estimate) -> Safe:
    rows = []
    for model in MODELS:
        shares = []
        for device in DEVICES:
            price = price_on(device, model)
            left = price.seconds(estimate.figures.missed)
            shares.append(percent(price.net_seconds(estimate.figures.anywhere.served) / left if left else 0.0))
        rows.append((model.label, *shares))
    return table(DataTable(("model", *(device.name for device in DEVICES)), tuple(rows)))


def _notes(estimate: Estimate) -> Section:
    notes = tag("ul", *(tag("li", each) for each in assumptions(estimate)), class_="notes")
    return Section("notes", "Assumptions", "", (card("What these figures assume", notes),))
