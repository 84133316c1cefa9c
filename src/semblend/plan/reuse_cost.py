"""What a plan costs and saves in milliseconds, on this server: units of work in, predicted time out.

One set of prices is learned from all timed work: the probe at start-up, the engine's own forward passes, and served
plans. A machine that is slow for a while so changes what reuse takes and what it saves alike, and not which is more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from typing import Final, NamedTuple

from sembase.latency import PAIRS_PER_UNIT
from semblend.contract import Decline, DeclineReason, ReusePlan, TokenRange

RATE: Final = 0.2  # of the way to a measurement
# Half of it is put down to the machine, and changes every price; half to the units that were measured.
COMMON: Final = 0.5
MAX_STEP: Final = 1.5  # a measurement is believed up to so many times the prediction: the machine may have stalled
PROBE_ROUNDS: Final = 300
# Before anything was loaded: of the price of computing a token.
LOAD_SHARE: Final = 0.05
# With each decline, of what only served plans teach: one is served again some time, and measured.
FORGOTTEN: Final = 0.001
# Recomputed tokens are scattered: so many groups of them are expected per token.
GROUPS_PER_TOKEN: Final = 0.5
# A plan must save a tenth more than it takes; a loss smaller than this does not decline it.
CAUTION: Final = 1.1
MIN_LOSS_MS: Final = 5.0


class Work(NamedTuple):
    """What is paid for. Each unit has a price that is not negative, so less work never takes longer.

    ``pairs`` are millions of (token, earlier token) pairs, ``rows`` sequences of a forward pass, ``asked_pairs``
    those of the question that selects recomputed tokens, ``loaded`` tokens in ``runs`` of donors.
    """

    passes: float = 0.0
    tokens: float = 0.0
    pairs: float = 0.0
    rows: float = 0.0
    asked_pairs: float = 0.0
    loaded: float = 0.0
    runs: float = 0.0


Timing = tuple[Work, float]  # milliseconds


def pass_work(ranges: Iterable[TokenRange], passes: float = 1.0) -> Work:
    """One forward pass over ``ranges``, each a row whose context is everything before it."""
    parts = list(ranges)
    pairs = sum(_pairs(part.start, len(part)) for part in parts)
    return Work(passes, sum(map(len, parts)), pairs / PAIRS_PER_UNIT, len(parts))


def saved_work(plan: ReusePlan) -> Work:
    """The part of a cold prefill that the claim spares the engine, in passes that it makes anyway."""
    claim = TokenRange(plan.exact_prefix_tokens, plan.claim_end)
    return pass_work([claim], passes=0.0)._replace(rows=0.0)


def reuse_work(plan: ReusePlan, asked_tokens: int) -> Work:
    """Load the runs, compute gaps and recomputed tokens. With ``asked_tokens`` of a question the latter wait for a
    pass of their own, which the question is computed in."""
    gaps, recomputed = plan.compute, plan.max_recomputed_tokens
    asked = (TokenRange(plan.claim_end, plan.claim_end + asked_tokens),) if asked_tokens else ()
    first = pass_work((*gaps, *asked), passes=bool(gaps or asked))
    mean_context = sum((run.target_start + run.target_end) / 2 * run.length for run in plan.runs) / plan.reused_tokens
    return Work(
        first.passes + bool(recomputed and (asked or not gaps)),
        first.tokens + recomputed,
        first.pairs + recomputed * mean_context / PAIRS_PER_UNIT,
        first.rows + recomputed * GROUPS_PER_TOKEN,
        asked_tokens * plan.claim_end / PAIRS_PER_UNIT,
        plan.reused_tokens,
        len(plan.runs),
    )


class ReuseCost:
    """Of one engine, a price per unit of work. Without a ``probe`` nothing is declined.

    Each measurement multiplies prices, so that they stay positive, by a power of measured over predicted time.
    Measured on one thread and asked on another: the prices are replaced as a whole.
    """

    def __init__(self, probe: Sequence[Timing] = ()) -> None:
        self.is_known = bool(probe)
        self._prices = Work()
        for _ in range(PROBE_ROUNDS):
            for work, ms in probe:
                self._learn(work, ms, 1.0, 0.0)
        self._prices = _before_any_plan(self._prices)

    def took(self, work: Work, ms: float, common: float = COMMON) -> None:
        """So much work has taken so long."""
        if ms > 0.0 and any(work):
            known = self.ms(work) or ms
            self._learn(work, min(max(ms, known / MAX_STEP), known * MAX_STEP), RATE, common)

    def served(
        self, plan: ReusePlan, asked_tokens: int, load_ms: float, compute_ms: float
    ) -> tuple[float | None, float | None]:
        """A plan has taken so long. What it was expected to take and to save, None where that is not known.

        Loads say nothing about the speed of computing.
        """
        work, saved = reuse_work(plan, asked_tokens), saved_work(plan)
        expected = (self.ms(work), self.ms(saved)) if self.is_known else (None, None)
        self.took(Work(loaded=work.loaded, runs=work.runs), load_ms, common=0.0)
        self.took(work._replace(loaded=0.0, runs=0.0), compute_ms)
        return expected

    def ms(self, work: Work) -> float:
        return float(sum(map(mul, work, self._prices)))

    def judge(self, plan: ReusePlan, asked_tokens: int) -> ReusePlan | Decline:
        """The plan, or a decline if it would take longer than the prefill it saves. The look-up was paid before."""
        if not self.is_known:
            return plan
        saved, taken = self.ms(saved_work(plan)), self.ms(reuse_work(plan, asked_tokens))
        if CAUTION * taken - saved <= MIN_LOSS_MS:
            return plan
        assumed = _before_any_plan(self._prices)
        self._prices = Work(
            *(price ** (1.0 - FORGOTTEN) * prior**FORGOTTEN for price, prior in zip(self._prices, assumed, strict=True))
        )
        detail = f"reuse would take {taken:.0f} ms and save {saved:.0f} ms of prefill"
        return Decline(DeclineReason.NOT_WORTH, detail, plan.discoveries)

    def _learn(self, work: Work, ms: float, rate: float, common: float) -> None:
        parts = [units * price for units, price in zip(work, self._prices, strict=True)]
        predicted = sum(parts)
        if not predicted:  # the first measurement: each unit is as likely to be what took the time
            even = ms / sum(map(bool, work))
            self._prices = Work(*(even / units if units else 0.0 for units in work))
            return
        off = ms / predicted
        self._prices = Work(
            *(
                price * off ** (rate * (common + (1.0 - common) * part / predicted))
                for price, part in zip(self._prices, parts, strict=True)
            )
        )


def _before_any_plan(prices: Work) -> Work:
    """With prices for what only plans do, before one was served."""
    return prices._replace(asked_pairs=prices.pairs, loaded=LOAD_SHARE * prices.tokens, runs=prices.rows)


def _pairs(context: int, tokens: int) -> float:
    return tokens * context + tokens * (tokens + 1) / 2
