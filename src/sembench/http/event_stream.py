"""A server-sent event stream as it arrives: when each token-bearing event came, and the lines worth decoding later.

This runs once per chunk of every stream, so nothing is parsed here: a line bears a token if a known key is followed by
a string that is not empty. JSON strings escape their quotes, so text that quotes such a key never looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sembench.http.request import Endpoint

# Each pattern starts with a literal, which the regex engine finds faster than it tries alternatives.
_CHAT: Final = tuple(
    re.compile(rb'"%s"\s*:\s*"(?!")' % key) for key in (b"content", b"reasoning_content", b"reasoning", b"arguments")
)
_TEXT: Final = re.compile(rb'"text"\s*:\s*"(?!")')
_ENDS: Final = re.compile(rb'"finish_reason"\s*:\s*"(?!")')
_GENERATED: Final = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
# What has to be decoded even if nobody wants the text.
_TELLING: Final = (b'"usage"', b'"error"', b'"kv_transfer_params"', b'"meta_info"')
_DONE: Final = b"[DONE]"


class EventStream:
    """Fed with bytes and the time they came; ``arrivals`` and ``lines`` are read when the stream has ended."""

    __slots__ = ("_bears_token", "_generated", "_keep_all", "_tail", "_telling", "_whole", "arrivals", "done")

    def __init__(self, endpoint: Endpoint, *, keep_all: bool) -> None:
        self.arrivals: list[float] = []
        self.done = False
        self._keep_all = keep_all
        self._tail = b""
        self._whole: list[bytes] = []
        self._telling: dict[bytes, bytes] = {}
        self._generated = 0
        chosen: dict[Endpoint, Callable[[bytes], object]] = {
            "chat": _bears_content,
            "completions": _TEXT.search,
            "sglang_generate": self._grew,
        }
        self._bears_token = chosen[endpoint]

    def feed(self, data: bytes, now: float) -> None:
        lines = (self._tail + data if self._tail else data).split(b"\n")
        self._tail = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line, now)

    def end(self, now: float) -> None:
        """A last line without its line end still counts."""
        if self._tail:
            self.feed(b"\n", now)

    @property
    def lines(self) -> list[bytes]:
        """The payloads, in order: all of them, or the last one that tells usage, an error or evidence."""
        chosen = self._whole if self._keep_all else list(dict.fromkeys(self._telling.values()))
        return [line[5:].strip() for line in chosen]

    def _take(self, line: bytes, now: float) -> None:
        # An answer may be nothing but its end: then the end token is the first one.
        if self._bears_token(line) or (not self.arrivals and _ENDS.search(line)):
            self.arrivals.append(now)
        elif _DONE in line and line[5:].strip() == _DONE:
            self.done = True
            return
        if self._keep_all:
            self._whole.append(line)
            return
        for key in _TELLING:
            if key in line:
                self._telling[key] = line

    def _grew(self, line: bytes) -> bool:
        """SGLang sends the whole text so far in every event; only its own count says whether a token came."""
        found = _GENERATED.search(line)
        count = int(found.group(1)) if found else 0
        grew, self._generated = count > self._generated, max(count, self._generated)
        return grew


def _bears_content(line: bytes) -> bool:
    return any(pattern.search(line) for pattern in _CHAT)
