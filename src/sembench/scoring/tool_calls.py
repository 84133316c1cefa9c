"""Tool calls, compared as data: a name and arguments out of JSON in the text or out of OpenAI's ``tool_calls``.

Order of keys, white space and ``1`` against ``1.0`` do not count. The client writes the calls that a server returns
apart from the text as JSON after it, so both forms are read alike. ``COMMAND`` compares shell commands of agents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sembench.scoring.base import Score, Task, by_reading

_BEGIN: Final = re.compile(r"[\[{]")
_MAX_BEGINNINGS: Final = 32
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_COMMAND_END: Final = re.compile(r"\n?```|<\|im_end\|>|<\|endoftext\|>")
_DECODER: Final = json.JSONDecoder()


def read_tool_calls(text: str, task: Task) -> str | None:
    """Every call of the first JSON value that holds one, one canonical JSON object per line."""
    for found, _ in zip(_BEGIN.finditer(text), range(_MAX_BEGINNINGS), strict=False):
        try:
            value, _ = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        if calls := [canonical_json(call) for call in _calls(value)]:
            return "\n".join(calls)
    return None


def canonical_json(value: object) -> str:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _calls(value: object) -> Iterator[Mapping[str, Any]]:
    """``[...]``, ``{"tool_calls": [...]}``, ``{"function": {...}}`` or ``{"name": ..., "arguments": ...}``."""
    if isinstance(value, list):
        for each in value:
            yield from _calls(each)
    elif isinstance(value, dict):
        if isinstance(value.get("tool_calls"), list):
            yield from _calls(value["tool_calls"])
        elif isinstance(value.get("function"), dict):
            yield from _calls(value["function"])
        elif isinstance(value.get("name"), str):
            given = next((value[key] for key in _ARGUMENTS if key in value), None)
            if given is not None:
                yield {"name": value["name"], "arguments": _decoded(given)}


def _decoded(arguments: object) -> object:
    """OpenAI sends arguments as a JSON text; text that is not JSON stays text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def read_command(text: str, task: Task) -> str | None:
    """The lines up to the end of the code block, without spaces at their ends."""
    lines = _COMMAND_END.split(text, maxsplit=1)[0].strip().splitlines()
    return "\n".join(line.rstrip() for line in lines) or None


TOOL_CALL: Final[Score] = by_reading(read_tool_calls)
COMMAND: Final[Score] = by_reading(read_command)
