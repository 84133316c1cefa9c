"""Readings in, figures and verdicts out. Every ratio is of one session; medians are over sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Final

from benchmarks.agent_breaks.planted import FACTS, OTHER_TENANT
from benchmarks.agent_breaks.readings import ARMS, Arm, Reading, is_repaired
from benchmarks.estimates import Quartiles
from benchmarks.targets import Verdict

# The turns of a session by where they are; "before" are ordinary exact hits.
PLACES: Final = ("first", "before", "break", "next", "later")


def place_of(reading: Reading) -> str:
    if reading.is_first:
        return "first"
    if reading.since_break is None:
        return "before"
    return {0: "break", 1: "next"}.get(reading.since_break, "later")


@dataclass(frozen=True, slots=True)
class Figures:
    """All readings of a run; cold ones are kept apart."""

    readings: tuple[Reading, ...]

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> Figures:
        """Sessions that every arm has completed, so that all arms are compared on the same ones."""
        known = list(readings)
        done = {arm: {reading.session for reading in known if reading.arm == arm} for arm in ARMS}
        arms = [sessions for sessions in done.values() if sessions]
        common = set.intersection(*arms) if arms else set()
        return cls(tuple(reading for reading in known if reading.session in common))

    @property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(arm for arm in ARMS if any(reading.arm == arm for reading in self.readings))

    @property
    def sessions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reading.session for reading in self.readings))

    def at(self, arm: Arm, place: str) -> list[Reading]:
        """Turns of one arm; the controls of another tenant repeat other sessions and are judged on their own."""
        return [
            reading
            for reading in self.readings
            if reading.arm == arm and place_of(reading) == place and reading.kind != OTHER_TENANT
        ]

    def ttft(self, arm: Arm, place: str) -> Quartiles | None:
        return Quartiles.of([reading.ttft_ms for reading in self.at(arm, place)])

    def mean_kl(self, arm: Arm, place: str) -> float | None:
        """Over the first tokens of the recorded answers, in nats."""
        values = [mean(reading.kl) for reading in self.at(arm, place) if reading.kl]
        return mean(values) if values else None

    def same_calls(self, arm: Arm, place: str) -> tuple[int, int]:
        """Tool calls with cold's most likely token at every position, and those that were compared."""
        calls = [reading for reading in self.at(arm, place) if reading.is_tool_call and reading.same_top is not None]
        return sum(bool(reading.same_top) for reading in calls), len(calls)

    def computed_per_session(self, arm: Arm, count: Callable[[Reading], int] = lambda r: r.computed_tokens) -> float:
        """Prompt tokens computed in a session, repairs and isolated prefills included: the mean."""
        own = [reading for reading in self.readings if reading.arm == arm]
        return sum(map(count, own)) / len({reading.session for reading in own}) if own else 0.0

    def over_exact_hit(self, arm: Arm) -> list[float]:
        """Blended break turns: TTFT over that of the same prompt as an exact hit with as many new tokens, on stock."""
        hits = {reading.session: reading.ttft_ms for reading in self.at("hit", "break")}
        broken = [reading for reading in self.at(arm, "break") if reading.is_blended]
        return [reading.ttft_ms / hits[reading.session] for reading in broken if reading.session in hits]

    def faster_than_stock(self, arm: Arm, *, low: int = 0, high: int = 1 << 30) -> list[float]:
        """Blended break turns with prompts of ``low`` to ``high`` tokens: stock's TTFT of the same turn over ours."""
        stock = {(reading.session, reading.turn): reading.ttft_ms for reading in self.at("stock", "break")}
        return [
            stock[reading.session, reading.turn] / reading.ttft_ms
            for reading in self.at(arm, "break")
            if reading.is_blended and (reading.session, reading.turn) in stock and low <= reading.prompt_tokens <= high
        ]

    def hits_after_repair(self, arm: Arm, *, only_repaired: bool = True) -> tuple[int, int]:
        """Turns after a blended break turn with stock's exact hit, and all such turns.

        ``only_repaired``: those whose think time sufficed to publish every full block of prompt and answer.
        """
        own = {(reading.session, reading.turn): reading for reading in self.readings if reading.arm == arm}
        stock = {(r.session, r.turn): r.exact_tokens for r in self.readings if r.arm == "stock"}
        counted = hits = 0
        for reading in self.at(arm, "break"):
            after = own.get((reading.session, reading.turn + 1))
            if after is None or after.since_break != 1 or not reading.is_blended:
                continue
            if only_repaired and not is_repaired(reading):
                continue
            counted += 1
            hits += after.exact_tokens == stock.get((after.session, after.turn))
        return hits, counted

    def tenants(self) -> tuple[int, int]:
        """Controls whose text another tenant had sent: first turns, and the tokens that served them."""
        first = [r for r in self.readings if r.kind == OTHER_TENANT and r.is_first and r.arm != "cold"]
        return len(first), sum(reading.exact_tokens + reading.reused_tokens for reading in first)

    def facts(self, arm: Arm) -> tuple[int, int, int]:
        """Changed facts that cold states correctly; of those, how many the arm states, and how many it has stale."""
        cold = {(r.session, r.turn): r.fact for r in self.readings if r.arm == "cold" and r.kind in FACTS}
        asked = [r for r in self.readings if r.arm == arm and r.fact and cold.get((r.session, r.turn)) == "new"]
        return len(asked), sum(r.fact == "new" for r in asked), sum(r.fact == "stale" for r in asked)

    def by_kind(self) -> dict[str, list[Reading]]:
        kinds: dict[str, list[Reading]] = {}
        for reading in self.readings:
            if reading.arm in ARMS and place_of(reading) == "break":
                kinds.setdefault(reading.kind, []).append(reading)
        return kinds

    def as_record(self) -> Mapping[str, Any]:
        return {
            "sessions": len(self.sessions),
            "arms": {
                arm: {
                    "ttft_ms": {place: _quartiles(self.ttft(arm, place)) for place in PLACES},
                    "mean_kl": {place: self.mean_kl(arm, place) for place in PLACES},
                    "same_tool_calls": {place: self.same_calls(arm, place) for place in PLACES},
                    "computed_tokens_per_session": self.computed_per_session(arm),
                    "repaired_tokens_per_session": self.computed_per_session(arm, lambda r: r.repaired_tokens),
                    "facts": self.facts(arm),
                }
                for arm in self.arms
            },
            "break_over_exact_hit": {arm: self.over_exact_hit(arm) for arm in self.arms},
            "stock_over_ours": {arm: self.faster_than_stock(arm) for arm in self.arms},
            "hits_after_repair": {arm: self.hits_after_repair(arm) for arm in self.arms},
            "other_tenant": self.tenants(),
        }


def verdicts(figures: Figures) -> list[Verdict]:
    """What repair is to reach, and one law: nothing crosses tenants."""
    found = []
    if "idle" in figures.arms:
        hits, counted = figures.hits_after_repair("idle")
        after, before = figures.mean_kl("idle", "next"), figures.mean_kl("stock", "next")
        found += [
            Verdict("break turn: TTFT over an exact hit", "<=", 2.5, _median(figures.over_exact_hit("idle")), "x"),
            Verdict(
                "break turn at 6-8K tokens: stock TTFT over ours",
                ">=",
                8.0,
                _median(figures.faster_than_stock("idle", low=6_000, high=8_192)),
                "x",
            ),
            Verdict("next turn is stock's exact hit, if repaired", ">=", 0.95, hits / counted if counted else None),
            Verdict(
                "next turn: KL minus stock's own noise",
                "<=",
                1e-3,
                None if after is None or before is None else after - before,
                "nats",
            ),
        ]
    asked = [figures.facts(arm) for arm in figures.arms if arm != "stock"]
    n, served = figures.tenants()
    found.append(Verdict("other tenant: tokens served", "==", 0, served if n else None, is_law=n > 0))
    stale = sum(each[2] for each in asked)
    found.append(Verdict("changed fact: stale answers", "==", 0, stale if any(a[0] for a in asked) else None))
    return found


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _quartiles(spread: Quartiles | None) -> dict[str, float] | None:
    return None if spread is None else {"n": spread.n, "low": spread.low, "median": spread.median, "high": spread.high}
