"""SGLang with a fuzzy radix cache. Segmented phases name their request; a *Realized* line often does not.

A *Realized N* line without request id is assigned to the only request that matched N tokens and has not been realized
yet. If two requests qualify, the line is counted but confirms reuse for neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from sembench.engine_events.dialects.base import LineResult, fields_of, request_of, whole
from sembench.engine_events.dialects.open_matches import OpenMatches
from sembench.engine_events.log_message import message_of
from sembench.engine_events.tally import MAX_EVIDENCE, Tally

_DONOR: Final = re.compile(r"(?:\[FUZZY\] )?register_donor(?:_async)?: ok\b", re.IGNORECASE)
_MATCH: Final = re.compile(r"\[FUZZY RADIX\] fuzzy match success\b", re.IGNORECASE)
_REALIZED: Final = re.compile(r"\[FUZZY\] realized\b(?: (\d{1,12}) fuzzy tokens\b)?", re.IGNORECASE)
_SEGMENTS: Final = re.compile(r"\(\d{1,6} segments?\)")
_PHASE: Final = re.compile(r"\[FUZZY RADIX\] segmented prefill realized donor phase\b", re.IGNORECASE)
_TARGET: Final = re.compile(r"target=\[(\d{1,12}),\s?(\d{1,12})\)")
_HIT: Final = re.compile(r"\[?(?:semantic|fuzzy)\b", re.IGNORECASE)
_FOUND: Final = re.compile(r"\b(?<!no )(?<!not )(?:hit|matched)\b", re.IGNORECASE)
_MARKS: Final = ("fuzzy", "FUZZY", "Fuzzy", "semantic", "Semantic", "register_donor")


@dataclass(frozen=True, slots=True)
class _Realized:
    line: int
    tokens: int
    request_id: str | None
    inferred_id: str | None


class SglangDialect:
    def __init__(self) -> None:
        self._open = OpenMatches()
        self._realized: list[_Realized] = []  # counted at the end
        self._realized_beyond = [0, 0]  # events and tokens after the list was full
        self._phased: set[str] = set()
        self._phases = 0

    def begin(self, tally: Tally) -> None:
        tally.measures("donor_registrations", "semantic_hits", "materialization_events", "materialized_tokens")

    def read_line(self, line: str, tally: Tally) -> LineResult:
        if not any(mark in line for mark in _MARKS):
            return LineResult.OTHER
        message = message_of(line)
        if realized := _REALIZED.match(message):
            return self._realize(whole(realized.group(1)), message, tally)
        fields = fields_of(message, listed=True)
        request_id = request_of(fields)
        if _PHASE.match(message):
            return self._phase(message, fields, request_id, tally)
        if _DONOR.match(message):
            if request_id is None or whole(fields.get("tokens")) is None:
                return LineResult.DAMAGED
            tally.add("donor_registrations")
        elif _MATCH.match(message):
            return self._match(whole(fields.get("cached")), request_id, tally)
        elif _is_hit(message, fields):
            tokens = next(
                (whole(fields[name]) for name in ("tokens", "matched_tokens", "reused_tokens") if name in fields), None
            )
            return self._match(tokens, request_id, tally)
        else:
            return LineResult.OTHER
        return LineResult.UNDERSTOOD

    def finish(self, tally: Tally) -> None:
        """If the log has phases, *Realized* lines repeat them and are dropped, unless their request has no phase."""
        for found in self._realized:
            if not self._phases:
                facts: dict[str, Any] = {"joined_by": "tokens"} if found.inferred_id else {}
                tally.materialized(found.request_id or found.inferred_id, found.tokens, line=found.line, **facts)
            elif found.request_id is not None and found.request_id not in self._phased:
                tally.materialized(found.request_id, found.tokens, line=found.line)
        if not self._phases and self._realized_beyond[0]:
            tally.add("materialization_events", self._realized_beyond[0])
            tally.add("materialized_tokens", self._realized_beyond[1])

    def _match(self, tokens: int | None, request_id: str | None, tally: Tally) -> LineResult:
        if tokens is None:
            return LineResult.DAMAGED
        self._open.add(request_id, tokens, tally.line)
        tally.hit(request_id, reusable_tokens=tokens)
        return LineResult.UNDERSTOOD

    def _realize(self, tokens: int | None, message: str, tally: Tally) -> LineResult:
        """The sum of several segments may be less than was matched, so it cannot identify the request."""
        if tokens is None:
            return LineResult.DAMAGED
        request_id = request_of(fields_of(message, listed=True))
        inferred = None if request_id or _SEGMENTS.search(message) else self._open.take(tokens)
        if len(self._realized) < MAX_EVIDENCE:
            self._realized.append(_Realized(tally.line, tokens, request_id, inferred))
        elif tokens:
            self._realized_beyond[0] += 1
            self._realized_beyond[1] += tokens
        return LineResult.UNDERSTOOD

    def _phase(self, message: str, fields: dict[str, str], request_id: str | None, tally: Tally) -> LineResult:
        tokens, target = whole(fields.get("donor_tokens")), _TARGET.search(message)
        if tokens is None or target is None or tokens > int(target.group(2)) - int(target.group(1)):
            return LineResult.DAMAGED
        self._phases += 1
        if request_id is not None and len(self._phased) < MAX_EVIDENCE:
            self._phased.add(request_id)
        tally.materialized(request_id, tokens, 1, target=[int(target.group(1)), int(target.group(2))])
        return LineResult.UNDERSTOOD


def _is_hit(message: str, fields: dict[str, str]) -> bool:
    """``semantic ... hit ... similarity= ... tokens=`` and its variants, at the start of a message."""
    if not _HIT.match(message) or not ({"similarity", "score"} & fields.keys()):
        return False
    return bool({"tokens", "matched_tokens", "reused_tokens"} & fields.keys()) and _FOUND.search(message) is not None
