"""One plan against the oracle and against the donors' own tokens."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.corpus import Tokens
from benchmarks.discovery.cases import Recipient
from benchmarks.discovery.oracle import Oracle
from benchmarks.targets import Spread
from semblend import Namespace, Planner, ReusePlan


@dataclass(slots=True)
class CaseScore:
    """Counts over the recipients of one case and size."""

    case: str
    size: int
    recipients: int = 0
    plans: int = 0
    truncated: int = 0
    oracle_runs: int = 0
    recalled_runs: int = 0
    oracle_tokens: int = 0
    planned_oracle_tokens: int = 0
    planned_other_tokens: int = 0
    wrong_tokens: int = 0
    lookup_ms: list[float] = field(default_factory=list)

    @property
    def run_recall(self) -> float | None:
        return self.recalled_runs / self.oracle_runs if self.oracle_runs else None

    @property
    def token_share(self) -> float | None:
        return self.planned_oracle_tokens / self.oracle_tokens if self.oracle_tokens else None

    def as_record(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in self.__slots__ if name != "lookup_ms"}
        spread = Spread.of(self.lookup_ms)
        timing = None if spread is None else {name: getattr(spread, name) for name in Spread.__slots__}
        return {**record, "run_recall": self.run_recall, "token_share": self.token_share, "lookup_ms": timing}


class Judge:
    """Compares the planner's and the oracle's answer to the same prompt."""

    def __init__(self, planner: Planner, namespace: Namespace, oracle: Oracle, donors: dict[str, Tokens]) -> None:
        self._planner = planner
        self._namespace = namespace
        self._oracle = oracle
        self._donors = donors

    def score(self, recipient: Recipient, into: CaseScore) -> None:
        tokens, prefix = recipient.tokens, recipient.exact_prefix_tokens
        started = time.perf_counter()
        plan = self._planner.plan(tokens, self._namespace, exact_prefix_tokens=prefix)
        into.lookup_ms.append((time.perf_counter() - started) * 1e3)
        planned = np.zeros(tokens.size, dtype=np.bool_)
        if isinstance(plan, ReusePlan):
            into.plans += 1
            into.truncated += plan.truncated
            for run in plan.runs:
                planned[run.target_start : run.target_end] = True
                donor = self._donors[run.donor_id][run.donor_start : run.donor_start + run.length]
                mine = tokens[run.target_start : run.target_end]
                into.wrong_tokens += run.length if donor.size != mine.size else int((donor != mine).sum())
        answer = self._oracle.ask(tokens, first=prefix)
        into.recipients += 1
        into.oracle_runs += len(answer.runs)
        into.recalled_runs += sum(bool(planned[start:end].all()) for start, end in answer.runs)
        into.oracle_tokens += int(answer.reusable.sum())
        into.planned_oracle_tokens += int((answer.reusable & planned).sum())
        into.planned_other_tokens += int((~answer.reusable & planned).sum())
