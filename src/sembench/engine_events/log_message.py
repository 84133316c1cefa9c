"""A line of an engine's log -> its message, without the prefixes of loggers, containers and collectors.

Evidence counts only at the start of a message, where the engine itself wrote it. A prompt that an engine echoes into
its log can hold any text, and must not be able to confirm reuse.
"""

from __future__ import annotations

import re
from typing import Final

_MAX_PARTS: Final = 12
_SERVICE: Final = re.compile(r"[\w.-]{1,80} {0,8}\| {0,8}")  # vllm-1  |
_BAR: Final = re.compile(r"\r?[\w ]{1,40}:\s{1,4}\d{1,3}%\|[^\]\r\n]{0,300}\]")  # a progress bar precedes the message
_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,16}m")
# One part of a header. Every alternative is bounded and starts differently, so that no line can be slow to match.
_PART: Final = re.compile(
    r"""
    (?:
        \[ (?! fuzzy | semantic | req_id= ) [^\[\]]{0,200} \] :?  # [2026-11-15 07:19:15 TP0] [start.py:52] [pod/a]
      | \( [^()]{0,200} \)                                      # (EngineCore_DP0 pid=412)
      | \d [\w.:,/+-]{0,60}                                     # dates, times, process ids
      | (?: LMCache \s )? (?: DEBUG | INFO | WARN(?:ING)? | ERROR | CRITICAL )
        (?: : (?: [\w.]{1,120} : )? )?                          # INFO   WARNING:   INFO:semblend.vllm:
      | [\w/.-]{1,120} \.py:\d{1,6} :?                          # connector.py:619:
      | std(?:out|err) (?: \s [FP] )? (?= \s )                  # container runtime
      | - (?= \s )
    )
    \s{0,8}
    """,
    re.VERBOSE | re.IGNORECASE,
)


def message_of(line: str) -> str:
    if "\x1b" in line:
        line = _COLOR.sub("", line)
    line = line.strip()
    service = _SERVICE.match(line)
    start = _skip(_BAR, line, service.end() if service else 0)
    return line[_skip(_PART, line, start) :]


def _skip(part: re.Pattern[str], line: str, start: int) -> int:
    """Position after up to ``_MAX_PARTS`` such parts."""
    for _ in range(_MAX_PARTS):
        found = part.match(line, start)
        if found is None:
            break
        start = found.end()
    return start
