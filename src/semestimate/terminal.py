"""The estimate in 80 columns."""

from __future__ import annotations

import textwrap
from typing import Final

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

COLUMNS: Final = 80
_BAR: Final = 30


def summary(estimate: Estimate) -> str:
    lines = [*_head(estimate), "", *_served(estimate), "", *_missed(estimate)]
    for part in (_anywhere(estimate), _advice(estimate), _owners(estimate), _cache(estimate), _time(estimate)):
        if part:
            lines += ["", *part]
    lines += ["", *_verdict(estimate), "", *_notes(estimate)]
    return "\n".join(lines) + "\n"


def _head(estimate: Estimate) -> list[str]:
    figures = estimate.figures
    counts = [f"{figures.requests:,} requests", f"{compact(figures.prompt.tokens)} prompt tokens"]
    counts += [f"{figures.sessions:,} sessions"] if figures.sessions else []
    counts += [f"{figures.tenants:,} tenants"] if figures.tenants > 1 else []
    counts += [f"{time_text(figures.duration_s)} of traffic"] if figures.duration_s else []
    return [*_wrapped(", ".join(figures.traces)), *_wrapped(", ".join(counts))]


def _served(estimate: Estimate) -> list[str]:
    figures = estimate.figures
    total = max(1, figures.prompt.tokens)
    found, served = figures.anywhere.found_work().tokens, figures.anywhere.served_work().tokens
    lines = [_bar("prefix caching can serve", figures.prefix_share)]
    if figures.sees_any_position:
        lines += [
            _bar("recurs elsewhere (runs >= 64)", found / total),
            _bar("  served by default gates", served / total),
            _bar("new", (figures.missed.tokens - found) / total),
        ]
    else:
        lines.append(_bar("missed", figures.missed.tokens / total))
    return ["Of the prompt tokens", *lines]


def _bar(name: str, share: float) -> str:
    return f"  {name:<31}{percent(share):>8}  {'#' * round(_BAR * max(0.0, min(1.0, share)))}".rstrip()


def _missed(estimate: Estimate) -> list[str]:
    title = "Why tokens were missed"
    lines = [f"{title:<44}{'requests':>9}{'tokens':>9}{'missed':>8}{'prefill':>9}"]
    lines += [
        f"  {_cut(row.name, 42):<42}{row.requests:>9,}{compact(row.tokens):>9}{percent(row.missed_share):>8}"
        f"{time_text(row.seconds):>9}"
        for row in missed_rows(estimate)
    ]
    return lines


def _anywhere(estimate: Estimate) -> list[str]:
    rows = class_rows(estimate)
    if not rows:
        return []
    title = "What reuse at any position adds"
    lines = [f"{title:<44}{'found':>9}{'tokens':>9}{'served':>8}{'tokens':>9}"]
    lines += [
        f"  {_cut(found.name, 42):<42}{found.requests:>9,}{compact(found.tokens):>9}{served.requests:>8,}"
        f"{compact(served.tokens):>9}"
        for found, served in rows
    ]
    declined = estimate.figures.anywhere.declined
    if declined:
        reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in sorted(declined.items()))
        lines += _wrapped(f"declined by default gates: {reasons}", "  ")
    return lines


def _advice(estimate: Estimate) -> list[str]:
    if not estimate.advice:
        return []
    lines = ["Cheaper first: changes to the prompts"]
    for each in estimate.advice:
        if each.saved is None:
            effect = f"now costs {compact(each.missed.tokens)} tokens in {each.requests:,} requests"
        else:
            seconds = estimate.price.seconds(each.saved)
            money = money_text(estimate.price, seconds)
            effect = f"saves {compact(each.saved.tokens)} tokens, {time_text(seconds)} of prefill"
            effect += f", {money}" if money else ""
        lines += _wrapped(f"- {each.change} ({each.cause.value}: {effect})", "  ", "    ")
    return lines


def _owners(estimate: Estimate) -> list[str]:
    figures = estimate.figures
    lines = []
    for title, owners in (("Tenants", figures.heaviest_tenants), ("Sessions", figures.heaviest_sessions)):
        if len(owners) > 1:
            heads = "".join(f"{head:>9}" for head in ("requests", "missed", "prefix", "found", "served"))
            lines.append(f"{title + ' that miss most':<35}{heads}")
            lines += [
                f"  {_cut(each.name, 33):<33}{each.requests:>9,}{compact(each.missed_tokens):>9}"
                f"{percent(each.prefix_tokens / max(1, each.prompt_tokens)):>9}{compact(each.found_tokens):>9}"
                f"{compact(each.served_tokens):>9}"
                for each in owners[:3]
            ]
    return lines


def _cache(estimate: Estimate) -> list[str]:
    lines = []
    curves = (
        ("prefix cache", estimate.figures.prefix_curve),
        ("donors", estimate.figures.content_curve),
    )
    for name, points in curves:
        enough = enough_cache(points)
        if enough is not None:
            lines += _wrapped(
                f"{name}: {size_text(estimate.price, enough.capacity_tokens)} serve {percent(enough.hit_share)}; "
                f"without a limit {percent(points[-1].hit_share)}",
                "  ",
                "    ",
            )
    return ["Cache size beyond which more memory hardly pays (LRU)", *lines] if lines else []


def _time(estimate: Estimate) -> list[str]:
    figures, price, verdict = estimate.figures, estimate.price, estimate.verdict
    requests = max(1, figures.requests)
    whole = price.seconds(figures.prompt)
    lines = [f"Prefill, {price.name}{' (predicted)' if price.is_predicted else ''}"]
    rows = [("without any cache", whole), ("with prefix caching", verdict.prefill_s)]
    if verdict.saved_s is not None:
        rows.append(("with reuse by default gates", verdict.prefill_s - verdict.saved_s))
    for name, seconds in rows:
        money = money_text(price, seconds)
        lines.append(
            f"  {name:<31}{time_text(seconds):>10}{time_text(seconds / requests) + ' per request':>24}"
            + (f"{money:>12}" if money else "")
        )
    return lines


def _verdict(estimate: Estimate) -> list[str]:
    verdict = estimate.verdict
    title = verdict.decision.value.upper()
    lines = ["=" * COLUMNS, *_wrapped(f"VERDICT: {title}")]
    for reason in verdict.reasons:
        lines += _wrapped(f"- {reason}", "", "  ")
    if verdict.decision in (Decision.TRY, Decision.PROMPTS_FIRST):
        lines += ["Next, on your own server: kvmend bench build --from-trace TRACE --output m.jsonl"]
    return [*lines, "=" * COLUMNS]


def _notes(estimate: Estimate) -> list[str]:
    return [line for each in assumptions(estimate) for line in _wrapped(f"* {each}", "", "  ")]


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=first, subsequent_indent=first if rest is None else rest, break_on_hyphens=False
    )


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "~"
