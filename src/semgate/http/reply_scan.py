"""What a reply shows while it passes through: first token, usage, how it ended. Bytes are never held back.

In: chunks as they come, and the time; out: `ReplyFacts`. Scanning stops at the first token; after it a chunk costs
about 0.2 us and only the last 4 to 16 KB of a reply are kept, because usage and the end of the answer are there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from sembase.http.event_stream import EventScanner

KEPT_TAIL_BYTES: Final = 4096
MAX_TAIL_BYTES: Final = 16 * 1024
MAX_LINE_BYTES: Final = 1024 * 1024
_USAGE: Final = re.compile(rb'"usage"\s*:\s*(?=\{)')
_META: Final = re.compile(rb'"meta_info"\s*:\s*(?=\{)')
_FINISH: Final = re.compile(rb'"finish_reason"\s*:\s*(?:"(\w{1,40})"|\{\s*"type"\s*:\s*"(\w{1,40})")')
_ERROR: Final = re.compile(rb'"error"\s*:\s*(?:\{|"(?!"))')
_JSON: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """``None``: the server did not report it. ``events`` counts data lines, the closing one included."""

    first_token_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    finish: str | None
    has_error: bool
    is_done: bool
    events: int


class ReplyScan:
    """One per reply. ``is_event_stream`` is False for a JSON document, whose first token cannot be observed."""

    __slots__ = (
        "_ended_line",
        "_events",
        "_held_bytes",
        "_scanner",
        "_tail",
        "first_token_s",
        "is_event_stream",
    )

    def __init__(self, *, is_event_stream: bool) -> None:
        self.first_token_s: float | None = None
        self.is_event_stream = is_event_stream
        self._scanner = EventScanner(keep="none", max_line_bytes=MAX_LINE_BYTES)
        self._tail: list[bytes] = []
        self._held_bytes = 0
        self._events = 0
        self._ended_line = True

    def feed(self, data: bytes, now_s: float) -> None:
        """``now_s`` is when the chunk came in."""
        if self.is_event_stream:
            self._events += data.count(b"\ndata:")
            if self._ended_line and data.startswith(b"data:"):
                self._events += 1
            self._ended_line = data.endswith(b"\n")
            if self.first_token_s is None:
                self._scanner.feed(data, now_s)
                if self._scanner.arrivals:
                    self.first_token_s = self._scanner.arrivals[0]
        self._tail.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > MAX_TAIL_BYTES:
            kept = b"".join(self._tail)[-KEPT_TAIL_BYTES:]
            self._tail = [kept]
            self._held_bytes = len(kept)

    @property
    def at_event_border(self) -> bool:
        """The last bytes completed an event, so another one may follow."""
        end = b"".join(self._tail[-4:])[-4:]
        return not end or end.endswith((b"\n\n", b"\r\n\r\n"))

    @property
    def ended_in_error(self) -> bool:
        """The server put an error into its stream, all it can do once its status line is sent."""
        return self.is_event_stream and _has_error(b"".join(self._tail))

    def facts(self) -> ReplyFacts:
        """Call it when the reply has ended, complete or not."""
        tail = b"".join(self._tail)
        usage = _last_object(_USAGE, tail) or _last_object(_META, tail)
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("cached_tokens")
        finishes = _FINISH.findall(tail) if b'"finish_reason"' in tail else ()
        return ReplyFacts(
            first_token_s=self.first_token_s,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            cached_tokens=_count(cached),
            output_tokens=_count(usage.get("completion_tokens")),
            finish=(finishes[-1][0] or finishes[-1][1]).decode() if finishes else None,
            has_error=_has_error(tail),
            is_done=b"data: [DONE]" in tail or b"data:[DONE]" in tail,
            events=self._events,
        )


def _last_object(pattern: re.Pattern[bytes], tail: bytes) -> dict[str, Any]:
    """The last object under that key. A model's own text cannot look like it: quotes are escaped inside of JSON."""
    for found in reversed(list(pattern.finditer(tail))):
        try:
            value, _ = _JSON.raw_decode(tail[found.end() :].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def _has_error(tail: bytes) -> bool:
    return b'"error"' in tail and _ERROR.search(tail) is not None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
