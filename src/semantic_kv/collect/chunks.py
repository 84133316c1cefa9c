"""The events of a streamed answer -> when the first token came, and the counts the server gave at its end."""

from __future__ import annotations

import json
from typing import Any, Final

_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "text")
_MAX_PENDING_BYTES: Final = 4 << 20


class AnswerStream:
    """Fed with bytes and the time they came. Holds one unfinished line, of at most 4 MiB, and the last usage."""

    __slots__ = ("_pending", "_usage", "done", "fault", "first_token_at", "model_name", "tokens_seen")

    def __init__(self) -> None:
        self.first_token_at: float | None = None
        self.tokens_seen = 0
        self.model_name: str | None = None
        self.done = False
        self.fault: str | None = None
        self._pending = b""
        self._usage: dict[str, Any] = {}

    def feed(self, data: bytes, now: float) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _MAX_PENDING_BYTES:
            self.fault, self._pending = "an event longer than 4 MiB", b""
        for line in lines:
            if line.startswith(_DATA):
                self._take(line[len(_DATA) :].strip(), now)

    @property
    def prompt_tokens(self) -> int | None:
        return _count(self._usage.get("prompt_tokens"))

    @property
    def cached_tokens(self) -> int | None:
        details = self._usage.get("prompt_tokens_details")
        return _count(details.get("cached_tokens")) if isinstance(details, dict) else None

    @property
    def output_tokens(self) -> int | None:
        return _count(self._usage.get("completion_tokens"))

    def _take(self, payload: bytes, now: float) -> None:
        if payload == _DONE:
            self.done = True
            return
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            self.fault = "an event is not JSON"
            return
        if not isinstance(event, dict):
            return
        if event.get("error"):
            self.fault = "the server broke off with an error"
            return
        if isinstance(event.get("model"), str):
            self.model_name = event["model"]
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        bears_token = _bears_token(choice)
        self.tokens_seen += bears_token
        # An answer may be nothing but its end: then the end token is the first one.
        if self.first_token_at is None and (bears_token or isinstance(choice.get("finish_reason"), str)):
            self.first_token_at = now


def _bears_token(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    held = {**choice, **(delta if isinstance(delta, dict) else {})}
    return any(isinstance(held.get(name), str) and held[name] for name in _TEXTS) or bool(held.get("tool_calls"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
