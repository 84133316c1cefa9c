"""LMCache next to vLLM or SGLang: an exact cache. What it retrieves is real KV reuse, but never semantic reuse."""

from __future__ import annotations

import re
from typing import Final

from sembench.engine_events.dialects.base import LineResult
from sembench.engine_events.log_message import message_of
from sembench.engine_events.tally import Tally

_REQUEST: Final = re.compile(r"(?:Reqid: |\[req_id=|for request )([^\s,\]]{1,256})")
_LOOKUP: Final = re.compile(r"LMCache hit tokens: (\d{1,12})(?!\d)(?:, need to load: (-?\d{1,12})(?!\d))?")
_LOADED: Final = re.compile(r"(?:Retrieved|Reusing) (\d{1,12})(?!\d)[^\d].{0,80}?tokens\b")
_STORED: Final = re.compile(r"Stored (\d{1,12})(?!\d)[^\d].{0,80}?tokens\b")
_STORING: Final = re.compile(r"Storing (?:KV cache for )?(\d{1,12})(?!\d)[^\d].{0,80}?tokens\b")
_BEGINNINGS: Final = ("Retrieved ", "Reusing ", "Stored ", "Storing ")


class LmcacheDialect:
    """Some versions log both ``Storing`` and ``Stored``; then only ``Stored`` counts as a donor registration."""

    def __init__(self) -> None:
        self._storing = 0
        self._stored = 0

    def begin(self, tally: Tally) -> None:
        tally.measures("donor_registrations", "semantic_hits", "load_advertisements")
        tally.measures("materialization_events", "materialized_tokens")

    def read_line(self, line: str, tally: Tally) -> LineResult:
        if "token" not in line:
            return LineResult.OTHER
        message = message_of(line)
        request = _REQUEST.search(message, 0, 600)
        request_id = request.group(1) if request else None
        if message.startswith("[req_id="):
            message = message.partition("] ")[2]
        if message.startswith(("Reqid: ", "LMCache hit tokens", "Total tokens")) and "LMCache hit tokens" in message:
            return self._look_up(message, request_id, tally)
        if found := _LOADED.match(message):
            tally.retrieved(request_id, int(found.group(1)))
        elif found := _STORED.match(message):
            self._stored += int(found.group(1)) > 0
        elif found := _STORING.match(message):
            self._storing += int(found.group(1)) > 0
        elif message.startswith(_BEGINNINGS):
            return LineResult.DAMAGED
        else:
            return LineResult.OTHER
        return LineResult.UNDERSTOOD

    def finish(self, tally: Tally) -> None:
        tally.add("donor_registrations", self._stored or self._storing)

    def _look_up(self, message: str, request_id: str | None, tally: Tally) -> LineResult:
        found = _LOOKUP.search(message, 0, 800)
        if found is None:
            return LineResult.DAMAGED
        hit_tokens, to_load = int(found.group(1)), found.group(2)
        if hit_tokens and (to_load is None or int(to_load) > 0):
            tally.add("load_advertisements")
            tally.note("load_advertised", request_id, tokens=hit_tokens if to_load is None else int(to_load))
        return LineResult.UNDERSTOOD
