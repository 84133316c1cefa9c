"""The scanner of streamed answers: bytes and their times in, the time of every token-bearing event out.

Used by the gateway (first token only) and the bench. It runs for every chunk of every stream, so it decodes no JSON: a
line bears a token if one of the known keys is followed by a value that is not empty. JSON escapes quotes inside
strings, so text that quotes such a key never looks like one.
"""

from __future__ import annotations

import re
from typing import Final, Literal

MAX_LINE_BYTES: Final = 16 << 20
DONE: Final = b"[DONE]"
# Each pattern starts with a literal, which the regex engine finds faster than it tries alternatives.
_TEXT_KEYS: Final = (b"content", b"text", b"reasoning_content", b"reasoning", b"refusal", b"arguments", b"delta")
_TOKENS: Final = (
    *(re.compile(rb'"%s"\s*:\s*"(?!")' % key) for key in _TEXT_KEYS),
    re.compile(rb'"function(?:_call)?"\s*:\s*\{[^{}]*"name"\s*:\s*"(?!")'),
    re.compile(rb'"token_ids"\s*:\s*\[\s*\d'),
    re.compile(rb'"output_ids"\s*:\s*\[\s*\d'),
    re.compile(rb'"audio"\s*:\s*\{'),
)
_ENDS: Final = re.compile(rb'"finish_reason"\s*:\s*"(?!")')
_SGLANG: Final = b'"meta_info"'
_GENERATED: Final = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
# The lines to decode after the stream even if its text is not kept.
_FINAL_KEYS: Final = (b'"usage"', b'"error"', b'"kv_transfer_params"', _SGLANG)


class EventScanner:
    """One per stream. ``arrivals`` has the time of each token-bearing event; ``done``: the closing event came.

    ``keep`` says which payloads ``lines`` returns: all, the last ones with usage, error or backend evidence, or none.
    An unfinished line longer than ``max_line_bytes`` is dropped and ``overlong`` set.
    """

    __slots__ = (
        "_final",
        "_generated",
        "_keep",
        "_kept",
        "_likely",
        "_max_line_bytes",
        "_open",
        "_open_bytes",
        "arrivals",
        "done",
        "overlong",
    )

    def __init__(
        self, *, keep: Literal["all", "final", "none"] = "final", max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self.arrivals: list[float] = []
        self.done = False
        self.overlong = False
        self._keep = keep
        self._max_line_bytes = max_line_bytes
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._kept: list[bytes] = []
        self._final: dict[bytes, bytes] = {}
        self._generated = 0
        self._likely = _TOKENS[0]

    def feed(self, data: bytes, now: float) -> None:
        """``now`` is when the bytes were read; every event they complete has this time."""
        last = data.rfind(b"\n")
        if last < 0:
            self._hold(data)
            return
        whole = data[:last]
        if self._open:
            whole = b"".join((*self._open, whole))
            self._open, self._open_bytes = [], 0
        if last + 1 < len(data):
            self._hold(data[last + 1 :])
        for line in whole.split(b"\n"):
            if line.startswith(b"data:"):
                self._take(line, now)

    def end(self, now: float) -> None:
        """A last line without its line end still counts."""
        if self._open:
            self.feed(b"\n", now)

    @property
    def lines(self) -> list[bytes]:
        """The kept payloads, in order."""
        chosen = self._kept if self._keep == "all" else list(dict.fromkeys(self._final.values()))
        return [line[5:].strip() for line in chosen]

    def _hold(self, data: bytes) -> None:
        self._open.append(data)
        self._open_bytes += len(data)
        if self._open_bytes > self._max_line_bytes:
            self._open, self._open_bytes, self.overlong = [], 0, True

    def _take(self, line: bytes, now: float) -> None:
        # An answer may consist of its end alone: then the end token is the first one.
        if self._bears_token(line) or (not self.arrivals and _ENDS.search(line)):
            self.arrivals.append(now)
        elif DONE in line and line[5:].strip() == DONE:
            self.done = True
            return
        if self._keep == "all":
            self._kept.append(line)
        elif self._keep == "final":
            for key in _FINAL_KEYS:
                if key in line:
                    self._final[key] = line

    def _bears_token(self, line: bytes) -> bool:
        """A part of the answer for the client; a role, an empty delta or usage is not one."""
        if _SGLANG in line and (found := _GENERATED.search(line)):
            # SGLang repeats the whole text in every event; only its count says whether a token came.
            count = int(found.group(1))
            grew, self._generated = count > self._generated, max(count, self._generated)
            return grew
        if self._likely.search(line):  # the events of a stream are alike
            return True
        for pattern in _TOKENS:
            if pattern.search(line):
                self._likely = pattern
                return True
        return False
