"""What is measured on which subject: a store of some size and profile, and the look-ups made against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.console import environment, progress
from benchmarks.planner.client import SubjectFailedError, SubjectProcess
from benchmarks.planner.prompts import HIT_CASES
from benchmarks.planner.tokens import DONOR_TOKENS
from benchmarks.targets import Spread

OURS = "ours"
OURS_LISTS = "ours, list input"
NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class LookupBlock:
    case: str
    prompt_tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class Scenario:
    subject: str
    command: Sequence[str]
    environment: dict[str, str]
    profile: str
    source: dict[str, Any]
    donors: int
    blocks: tuple[LookupBlock, ...]
    fill_limit_s: float = 3_600.0
    block_limit_s: float = 60.0
    seed: int = 11


@dataclass(slots=True)
class Measured:
    """One scenario's figures. ``failure`` is set when the subject died."""

    scenario: Scenario
    fill: dict[str, Any] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""
    environment: dict[str, Any] = field(default_factory=environment)

    def block(self, case: str, prompt_tokens: int) -> dict[str, Any] | None:
        for block in self.blocks:
            if (block["case"], block["prompt_tokens"]) == (case, prompt_tokens):
                return block
        return None

    def spread(self, cases: Sequence[str], prompt_tokens: int) -> Spread | None:
        """Wall time in ms over the pooled look-ups of several cases."""
        pooled: list[float] = []
        for case in cases:
            block = self.block(case, prompt_tokens)
            pooled += block["wall_ms"] if block else []
        return Spread.of(pooled)

    def bytes_per_donor(self, key: str) -> float | None:
        value, donors = self.fill.get(key), self.fill.get("donors", 0)
        return None if value is None or not donors else value / donors

    def registrations_per_s(self) -> float | None:
        donors = self.fill.get("donors", 0)
        return donors / self.fill["register_s"] if donors else None

    def as_record(self) -> dict[str, Any]:
        scenario = self.scenario
        return {
            "subject": scenario.subject,
            "profile": scenario.profile,
            "donors_wanted": scenario.donors,
            "environment": self.environment,
            "failure": self.failure,
            "fill": self.fill,
            "blocks": [_block_record(block) for block in self.blocks],
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Measured:
        """Read the figures of an earlier run, to compare new figures of ours without measuring the rival again."""
        scenario = Scenario(record["subject"], (), {}, record["profile"], {}, record["donors_wanted"], ())
        return cls(scenario, record["fill"], record["blocks"], record["failure"], record["environment"])


def measure(scenario: Scenario) -> Measured:
    measured = Measured(scenario)
    progress(f"{scenario.subject}: filling {scenario.donors:,} donors, profile {scenario.profile}")
    try:
        with SubjectProcess(scenario.command, scenario.environment) as process:
            measured.fill = process.ask(
                "fill", source=scenario.source, donor_count=scenario.donors, time_limit_s=scenario.fill_limit_s
            )
            if measured.fill["stopped"] != "filled":
                progress(f"{scenario.subject}: {measured.fill['stopped']} ({measured.fill['donors']:,} donors)")
            for block in scenario.blocks:
                if measured.fill["donors"]:
                    measured.blocks.append(_ask_block(process, scenario, block))
    except SubjectFailedError as failed:
        lines = str(failed).strip().splitlines() or ["died without a word"]
        measured.failure = next((line for line in reversed(lines) if "Error" in line), lines[-1])
        progress(f"{scenario.subject}: failed: {measured.failure}")
    return measured


def _ask_block(process: SubjectProcess, scenario: Scenario, block: LookupBlock) -> dict[str, Any]:
    answer = process.ask(
        "lookups",
        case=block.case,
        prompt_tokens=block.prompt_tokens,
        count=block.count,
        time_limit_s=scenario.block_limit_s,
        seed=scenario.seed,
    )
    return {"case": block.case, "prompt_tokens": block.prompt_tokens, **answer}


def _block_record(block: dict[str, Any]) -> dict[str, Any]:
    """Spreads for reading, raw times for later comparison."""
    record = dict(block)
    for key in ("wall_ms", "cpu_ms"):
        spread = Spread.of(block[key])
        record[key] = [round(value, 5) for value in block[key]]
        record[f"{key}_spread"] = None if spread is None else {name: getattr(spread, name) for name in Spread.__slots__}
    return record


def blocks_of(hits: int, misses: int, long_prompts: dict[int, int], head_only: int = 0) -> tuple[LookupBlock, ...]:
    """2K prompts of every hit case and of misses, then long prompts by ``{tokens: count}``."""
    blocks = [LookupBlock(case, DONOR_TOKENS, hits) for case in (*HIT_CASES, "new_tail") if hits]
    blocks += [LookupBlock("miss", DONOR_TOKENS, misses)] if misses else []
    blocks += [LookupBlock("head_only", DONOR_TOKENS, head_only)] if head_only else []
    for tokens, count in long_prompts.items():
        blocks += [LookupBlock("composed", tokens, count), LookupBlock("miss", tokens, count)]
    return tuple(blocks)
