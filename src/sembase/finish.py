"""How an answer ended; everywhere else a finish reason is its index into `FINISH_REASONS`, -1 where it is unknown."""

from __future__ import annotations

from typing import Final

FINISH_REASONS: Final[tuple[str, ...]] = ("stop", "tool_call", "length", "abort")
UNKNOWN_FINISH: Final = -1
STOP, TOOL_CALL, LENGTH, ABORT = range(len(FINISH_REASONS))
# The names that OpenAI's and Anthropic's interfaces use.
_NAMES: Final = {
    "stop": STOP,
    "end_turn": STOP,
    "stop_sequence": STOP,
    "tool_call": TOOL_CALL,
    "tool_calls": TOOL_CALL,
    "tool_use": TOOL_CALL,
    "function_call": TOOL_CALL,
    "length": LENGTH,
    "max_tokens": LENGTH,
    "abort": ABORT,
}


def finish_index(name: object) -> int:
    """The index of a finish reason as an API names it; ``UNKNOWN_FINISH`` for any other value."""
    return _NAMES.get(name, UNKNOWN_FINISH) if isinstance(name, str) else UNKNOWN_FINISH
