"""Everything a person reads, as rows of text: the terminal and the page show the same figures."""

from __future__ import annotations

from dataclasses import dataclass

from semblend.contract import PlanShape
from semblend.plan.gates import ADAPTER_GATES
from semestimate.advice import Advice, advice_for
from semestimate.analysis import Figures
from semestimate.anywhere import Saved
from semestimate.cost import OVERHEAD_S, Price
from semestimate.curve import CurvePoint
from semestimate.verdict import Verdict, judge
from semestimate.work import Work

_CLASSES = {
    PlanShape.NEW_INSTRUCTION: "same text, new beginning",
    PlanShape.EDIT: "edited text",
    PlanShape.REORDER: "other order, one donor",
    PlanShape.COMPOSITION: "parts of several prompts",
}
_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    figures: Figures
    price: Price
    advice: tuple[Advice, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """``share`` is of the prompt tokens, ``missed_share`` of the missed ones."""

    name: str
    requests: int
    tokens: int
    share: float
    missed_share: float
    seconds: float


def estimate_of(figures: Figures, price: Price) -> Estimate:
    advice = advice_for(figures)
    return Estimate(figures, price, advice, judge(figures, advice, price))


def missed_rows(estimate: Estimate) -> tuple[Row, ...]:
    """Why tokens were missed, breaks by cause with the most expensive first."""
    misses = estimate.figures.misses
    breaks = sorted(misses.breaks.items(), key=lambda each: -each[1].missed.tokens)
    named = [("first of a session", misses.starts), ("new text", misses.new_text)]
    named += [(f"break: {cause.value}", count) for cause, count in breaks]
    return tuple(_row(estimate, name, each.requests, each.missed) for name, each in named if each.requests)


def class_rows(estimate: Estimate) -> tuple[tuple[Row, Row], ...]:
    """Found and served, for each class of plan."""
    anywhere = estimate.figures.anywhere
    pairs = []
    for shape in PlanShape:
        found, served = anywhere.found.get(shape, Saved()), anywhere.served.get(shape, Saved())
        if found.requests or served.requests:
            name = f"{shape.value.replace('_', ' ')}: {_CLASSES[shape]}"
            pairs.append(
                (
                    _row(estimate, name, found.requests, found.work),
                    _row(estimate, name, served.requests, served.work),
                )
            )
    return tuple(pairs)


def _row(estimate: Estimate, name: str, requests: int, work: Work) -> Row:
    figures = estimate.figures
    return Row(
        name,
        requests,
        work.tokens,
        work.tokens / max(1, figures.prompt.tokens),
        work.tokens / max(1, figures.missed.tokens),
        estimate.price.seconds(work),
    )


def enough_cache(points: tuple[CurvePoint, ...]) -> CurvePoint | None:
    """The smallest cache that serves nearly all (95 %) of what an unlimited one serves; a larger one hardly pays."""
    if not points:
        return None
    return next(each for each in points if each.hit_share >= _NEARLY_ALL * points[-1].hit_share)


def size_text(price: Price, tokens: int) -> str:
    """``12,000 tokens (1.5 GB)``."""
    text = f"{compact(tokens)} tokens"
    if price.kv_bytes_per_token is None:
        return text
    size = tokens * price.kv_bytes_per_token
    for unit in ("MB", "GB", "TB"):
        if size < 1000e6 or unit == "TB":
            return f"{text} ({size / 1e6:,.3g} {unit})"
        size /= 1000
    return text


def compact(number: float) -> str:
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "K")):
        if abs(number) >= bound:
            divisor = 1e3 if unit == "K" else bound
            return f"{number / divisor:,.3g}{unit}"
    return f"{number:,.0f}"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def time_text(seconds: float) -> str:
    if abs(seconds) < 1:
        return f"{1000 * seconds:,.3g} ms"
    return f"{seconds:,.3g} s" if abs(seconds) < 600 else f"{seconds / 3600:,.3g} h"


def money_text(price: Price, seconds: float) -> str | None:
    money = price.money(seconds)
    return None if money is None else f"{price.currency}{money:,.2f}"


def assumptions(estimate: Estimate) -> tuple[str, ...]:
    figures, price = estimate.figures, estimate.price
    lines = [
        "The prefix cache is unlimited and never cold: what it serves is a maximum. Blocks of "
        f"{figures.block_tokens} tokens.",
        f"Seconds: {price.name}, "
        + (
            "predicted from published peak rates, not measured."
            if price.is_predicted
            else "your own calibration; a loaded token costs what it found for a cached one."
        )
        + f" Each load also costs {1000 * OVERHEAD_S:.0f} ms.",
    ]
    if figures.sees_any_position:
        gates = ADAPTER_GATES
        lines.append(
            "Every earlier prompt of a tenant is a donor, and no donor is evicted. Default gates: runs of "
            f"{gates.min_run_tokens} tokens and more, at least {100 * gates.min_reuse_ratio:g} % of what the prefix "
            f"leaves and {gates.min_inexact_tokens} tokens where the context differs, mean fraction of differing "
            f"context at most {gates.max_context_share:g}."
        )
    else:
        lines.append("The trace has ids of prefixes: reuse at other positions is not visible in it.")
    if figures.misses.breaks and not figures.sees_content:
        lines.append(
            "Without text a changed date, reordered tools and an edited system prompt look alike: a break is named by "
            "where it is, not by its cause."
        )
    if not figures.sessions and figures.shows.get("none", 0) < figures.requests:
        lines.append("No session ids: compacted history and new text look alike.")
    if figures.tokenizer == "builtin" and figures.shows.get("text", 0):
        lines.append("Tokens of texts are counted by the built-in rule, not by your model; pass --tokenizer.")
    if figures.observed_requests:
        share = figures.observed_hit_tokens / max(1, figures.observed_prompt_tokens)
        lines.append(
            f"The server itself reported prefix hits of {percent(share)} of the prompt tokens "
            f"over {figures.observed_requests:,} requests."
        )
    return (*lines, *figures.notes)
