"""What a reply tells while it passes by: the first token-bearing event, usage, how it ended. Bytes are never held back.

In: chunks as they come, and the time; out: `ReplyFacts`. Full parsing stops at the first token; after it a chunk costs
about 0.2 us and only the last 4 to 16 KB of a reply are kept, for usage and the end stand there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

KEPT_TAIL_BYTES: Final = 4096
MAX_TAIL_BYTES: Final = 16 * 1024
MAX_LINE_BYTES: Final = 1024 * 1024
_USAGE: Final = re.compile(rb'"usage"\s*:\s*(?=\{)')
_META: Final = re.compile(rb'"meta_info"\s*:\s*(?=\{)')
_FINISH: Final = re.compile(rb'"finish_reason"\s*:\s*(?:"(\w{1,40})"|\{\s*"type"\s*:\s*"(\w{1,40})")')
_ERROR: Final = re.compile(rb'"error"\s*:\s*(?:\{|"(?!"))')
_JSON: Final = json.JSONDecoder()
_DELTA_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """``None`` says the server did not tell. ``events`` counts data lines, the closing one included."""

    first_token_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    finish: str | None
    has_error: bool
    is_done: bool
    events: int


class ReplyScan:
    """One for each reply; ``is_event_stream`` False for a JSON document, whose first token nobody can see."""

    __slots__ = (
        "_ended_line",
        "_events",
        "_held_bytes",
        "_open_bytes",
        "_open_line",
        "_tail",
        "first_token_s",
        "is_event_stream",
    )

    def __init__(self, *, is_event_stream: bool) -> None:
        self.first_token_s: float | None = None
        self.is_event_stream = is_event_stream
        self._open_line: list[bytes] = []
        self._open_bytes = 0
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
                self._look_for_token(data, now_s)
        self._tail.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > MAX_TAIL_BYTES:
            kept = b"".join(self._tail)[-KEPT_TAIL_BYTES:]
            self._tail = [kept]
            self._held_bytes = len(kept)

    @property
    def at_event_border(self) -> bool:
        """The last bytes ended an event, so another one may follow."""
        end = b"".join(self._tail[-4:])[-4:]
        return not end or end.endswith((b"\n\n", b"\r\n\r\n"))

    @property
    def ended_in_error(self) -> bool:
        """The server put an error into its stream, the only way left to it once its status was sent."""
        return self.is_event_stream and _has_error(b"".join(self._tail))

    def facts(self) -> ReplyFacts:
        """When the reply has ended, well or not."""
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

    def _look_for_token(self, data: bytes, now_s: float) -> None:
        last = data.rfind(b"\n")
        if last < 0:
            self._open_line.append(data)
            self._open_bytes += len(data)
            if self._open_bytes > MAX_LINE_BYTES:  # no event of an answer's beginning is that long
                self._open_line, self._open_bytes = [], 0
            return
        whole = b"".join((*self._open_line, data[:last]))
        self._open_line, self._open_bytes = [data[last + 1 :]], len(data) - last - 1
        for line in whole.split(b"\n"):
            if line.startswith(b"data:") and _bears_token(line[5:]):
                self.first_token_s = now_s
                self._open_line = []
                return


def _bears_token(payload: bytes) -> bool:
    """An event that gives the client at least a part of the answer; a role, an empty delta or usage is none."""
    try:
        event = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not isinstance(event, dict):
        return False
    choices = event.get("choices")
    if isinstance(choices, list):
        return any(_choice_bears_token(choice) for choice in choices if isinstance(choice, dict))
    delta = event.get("delta")  # the responses API; there a delta may also be an object
    return _is_text(event.get("text")) or _is_text(delta) or bool(event.get("output_ids"))


def _choice_bears_token(choice: dict[str, Any]) -> bool:
    if _is_text(choice.get("text")) or choice.get("token_ids"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    if any(_is_text(delta.get(name)) for name in _DELTA_TEXTS) or isinstance(delta.get("audio"), dict):
        return True
    return any(map(_call_bears_token, [*_list(delta.get("tool_calls")), delta]))


def _call_bears_token(holder: object) -> bool:
    function = holder.get("function") or holder.get("function_call") if isinstance(holder, dict) else None
    return isinstance(function, dict) and (_is_text(function.get("name")) or _is_text(function.get("arguments")))


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


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
