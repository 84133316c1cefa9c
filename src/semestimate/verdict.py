"""Figures in, a decision out: try it, change the prompts first, do not use it, or the trace cannot tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from semestimate.advice import Advice, recovered
from semestimate.analysis import Figures
from semestimate.cost import Price

MIN_SAVED_SHARE: Final = (
    0.05  # of the prefill seconds that remain with prefix caching; below it the effort is not repaid
)
MIN_MISSED_SHARE: Final = 0.05  # of the prompt tokens


class Decision(StrEnum):
    TRY = "try it"
    PROMPTS_FIRST = "change the prompts first"
    NO = "you should not use this"
    UNKNOWN = "this trace cannot tell"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``saved_share`` is of the prefill seconds that remain with prefix caching, by what default gates serve."""

    decision: Decision
    reasons: tuple[str, ...]
    prefill_s: float
    saved_s: float | None
    recovered_s: float

    @property
    def saved_share(self) -> float | None:
        return None if self.saved_s is None or not self.prefill_s else self.saved_s / self.prefill_s


def judge(figures: Figures, advice: tuple[Advice, ...], price: Price) -> Verdict:
    prefill = price.seconds(figures.missed)
    back = price.seconds(recovered(advice))
    missed_share = 1.0 - figures.prefix_share
    if not figures.prompt.tokens or set(figures.shows) <= {"none", "text"}:
        why = "The trace has lengths only. Record prompts, or their digests, with `kvmend proxy`."
        return Verdict(Decision.UNKNOWN, (why,), prefill, None, back)
    if missed_share < MIN_MISSED_SHARE:
        reasons = [
            f"Prefix caching alone can serve {_percent(figures.prefix_share)} of the prompt tokens; "
            f"at most {_percent(missed_share)} is left for any other reuse."
        ]
        return Verdict(Decision.NO, tuple(reasons), prefill, _saved(figures, price), back)
    if not figures.sees_any_position:
        why = (
            f"Prefix caching can serve {_percent(figures.prefix_share)}. Whether the other {_percent(missed_share)} "
            "recurs at other positions is not visible in ids of prefixes; record with `kvmend proxy` (no text)."
        )
        return Verdict(Decision.UNKNOWN, (why,), prefill, None, back)
    return _judge_reuse(figures, price, prefill, back)


def _judge_reuse(figures: Figures, price: Price, prefill: float, back: float) -> Verdict:
    saved = _saved(figures, price) or 0.0
    served, found = figures.anywhere.served_work(), figures.anywhere.found_work()
    share = saved / prefill if prefill else 0.0
    is_repaid = share >= MIN_SAVED_SHARE
    reasons = [
        f"Prefix caching can serve {_percent(figures.prefix_share)} of the prompt tokens. Runs of 64 tokens and more "
        f"that recur elsewhere are another {_percent(found.tokens / figures.prompt.tokens)}; default gates serve "
        f"{_percent(served.tokens / figures.prompt.tokens)}."
    ]
    saves = (
        f"kvmend saves {_percent(share)} of the prefill time that prefix caching leaves, after loading, recomputing "
        "and overhead."
    )
    enough_back = 0.5 * saved if is_repaid else max(saved, MIN_SAVED_SHARE * prefill)
    if back >= enough_back and back > 0.0:
        decision = Decision.PROMPTS_FIRST
        again = " Make them and estimate again: much of the rest may be the same tokens." if is_repaid else ""
        reasons.append(f"Changes to the prompts would save {_percent(back / prefill)} by prefix caching alone.{again}")
        reasons.append(f"If you cannot change them: {saves}")
    else:
        decision = Decision.TRY if is_repaid else Decision.NO
        reasons.append(saves)
    even = price.break_even_tokens(figures.prompt.tokens // max(1, figures.requests))
    requests = sum(each.requests for each in figures.anywhere.served.values())
    if even is None:
        reasons.append("On this hardware a load is never faster than prefill.")
    elif requests and served.tokens / requests < even:
        reasons.append(
            f"A served request reuses {served.tokens / requests:,.0f} tokens on average; loading pays "
            f"from {even:,.0f} on."
        )
    is_declined = found.tokens > 2 * served.tokens and price.seconds(found) >= 2 * MIN_SAVED_SHARE * prefill
    if decision is Decision.NO and is_declined:
        reasons.append(
            "More recurs than default gates serve: they decline what is short or follows too much new text to keep "
            "answers close. A recompute budget can serve more of the long runs; measure fidelity first."
        )
    return Verdict(decision, tuple(reasons), prefill, saved, back)


def _saved(figures: Figures, price: Price) -> float | None:
    return price.net_seconds(figures.anywhere.served) if figures.sees_any_position else None


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
