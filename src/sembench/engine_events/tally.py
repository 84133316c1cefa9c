"""Collects what a dialect parses, line by line -> an ``EngineSummary``. Memory is bounded: the excess is counted."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sembench.engine_events.summary import EngineSummary

MAX_EVIDENCE: Final = 200_000  # semantic hits and materializations with a request id, which gates join
MAX_OTHER_EVENTS: Final = 10_000
MAX_KEPT_LINES: Final = 1_000  # errors; the same limit for runtime warnings
MAX_LINE_CHARACTERS: Final = 500
MAX_REASONS: Final = 100
OTHER_REASONS: Final = "(other)"

COUNTS: Final = (
    "donor_registrations",
    "semantic_hits",
    "load_advertisements",
    "materialization_events",
    "materialized_tokens",
    "materialized_units",
    "rope_corrections",
    "engine_boundaries",
)
HIT: Final = "semantic_hit"
MATERIALIZED: Final = "materialized"


class Tally:
    """``line`` is the number of the current line; events recorded for it carry that number."""

    def __init__(self) -> None:
        self.line = 0
        self._counts: Counter[str] = Counter()
        self._measured: set[str] = set()
        self._evidence: list[dict[str, Any]] = []
        self._others: list[dict[str, Any]] = []
        self._left_out: Counter[str] = Counter()
        self._hits: set[str] = set()  # requests; bounded like the evidence
        self._loads: set[str] = set()
        self._reasons: Counter[str] = Counter()
        self._errors: list[str] = []
        self._error_at = 0
        self._warnings: list[str] = []

    def measures(self, *counts: str) -> None:
        """Counts this log can show: they are 0, not unknown, if no line reports them."""
        self._measured.update(counts)

    def add(self, count: str, amount: int = 1) -> None:
        self._measured.add(count)
        self._counts[count] += amount

    def hit(self, request_id: str | None, **facts: Any) -> None:
        """The engine found a donor for a request. Repeated reports of the same request count once."""
        if request_id is not None and request_id in self._hits:
            return
        self.add("semantic_hits")
        if self._keep(HIT, request_id, self.line, facts) and request_id is not None:
            self._hits.add(request_id)

    def materialized(
        self,
        request_id: str | None,
        tokens: int | None = None,
        units: int | None = None,
        *,
        line: int | None = None,
        **facts: Any,
    ) -> None:
        """Donor KV was loaded. An empty load is listed as ``nothing_loaded`` and not counted."""
        line = self.line if line is None else line
        if tokens == 0 or units == 0:
            self._keep("nothing_loaded", request_id, line, facts)
            return
        self.add("materialization_events")
        for count, name, amount in (("materialized_tokens", "tokens", tokens), ("materialized_units", "units", units)):
            if amount is not None:
                self.add(count, amount)
                facts[name] = amount
        if self._keep(MATERIALIZED, request_id, line, facts) and request_id is not None:
            self._loads.add(request_id)

    def retrieved(self, request_id: str | None, tokens: int) -> None:
        """An exact cache loaded KV: counted as materialized, but its event never joins with a semantic hit."""
        if tokens:
            self.add("materialization_events")
            self.add("materialized_tokens", tokens)
        self.note("exact_retrieval", request_id, tokens=tokens)

    def note(self, kind: str, request_id: str | None = None, **facts: Any) -> None:
        """Keep an event for inspection; it is not evidence of reuse."""
        self._keep(kind, request_id, self.line, facts)

    def reject(self, reason: str) -> None:
        reason = reason[:MAX_LINE_CHARACTERS]
        is_new = reason not in self._reasons
        self._reasons[OTHER_REASONS if is_new and len(self._reasons) >= MAX_REASONS else reason] += 1

    def error(self, line: str) -> None:
        """Recorded once per line, even if both the dialect and the caller report it."""
        if self._error_at == self.line:
            return
        self._error_at = self.line
        self._keep_line(self._errors, "errors", line)

    def warn(self, line: str) -> None:
        self._keep_line(self._warnings, "runtime_warnings", line)

    def finish(self, engine: str, **read: int) -> EngineSummary:
        left_out = {f"{name}_left_out": self._left_out[name] for name in ("events", "errors", "runtime_warnings")}
        counts = {name: self._counts[name] if name in self._measured else None for name in COUNTS}
        listed = sorted([*self._evidence, *self._others], key=lambda event: int(event["line"]))
        return EngineSummary(
            engine=engine,
            **counts,
            rejection_reasons=dict(sorted(self._reasons.items())),
            errors=tuple(self._errors),
            runtime_warnings=tuple(self._warnings),
            events=({"event": "log_read", **read, **left_out}, *listed),
            materialized_semantic_kv_reuse=bool(self._hits & self._loads),
        )

    def _keep(self, kind: str, request_id: str | None, line: int, facts: dict[str, Any]) -> bool:
        is_evidence = kind in (HIT, MATERIALIZED) and request_id is not None
        kept, limit = (self._evidence, MAX_EVIDENCE) if is_evidence else (self._others, MAX_OTHER_EVENTS)
        if len(kept) >= limit:
            self._left_out["events"] += 1
            return False
        named = {} if request_id is None else {"request_id": request_id}
        kept.append({"event": kind, **named, "line": line, **facts})
        return True

    def _keep_line(self, kept: list[str], name: str, line: str) -> None:
        if len(kept) < MAX_KEPT_LINES:
            kept.append(line.strip()[:MAX_LINE_CHARACTERS])
        else:
            self._left_out[name] += 1
