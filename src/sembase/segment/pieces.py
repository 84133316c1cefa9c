"""A request's prompt as labelled pieces: messages, tools, media, text or token ids in the order the model sees them.

In: the values of a parsed body (chat, completions or Responses API); out: pieces. Messages without text are left out.
Lazy: a caller that sets ``max_pieces`` pays only for the pieces it takes. The proxy, the router and the trace readers
share it, so that a request and its log give the same pieces. Tools nested too deep raise RecursionError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from sembase.segment.messages import ROLE_LABELS, Message
from sembase.segment.rules import LABEL_LINE
from sembase.segment.segments import iter_segments, segment_prompt

TOKEN_BLOCK: Final = 128
MAX_TEXT_CHARS: Final = 1 << 20  # of one text, if the caller sets max_pieces
_BLANK_LINE: Final = re.compile(r"\n[ \t]*\n\s*")
MEDIA: Final = ("image_url", "input_image", "input_audio", "audio_url", "video_url", "file")


@dataclass(frozen=True, slots=True)
class Piece:
    """``content`` is the input of its digest; ``text`` is None if there is no text to tokenize."""

    label: str
    content: bytes
    text: str | None
    tokens: int | None = None
    media: str | None = None


def pieces_of_tools(tools: object) -> Iterator[Piece]:
    """Chat templates put the tools in front of the conversation."""
    if isinstance(tools, list) and tools:
        yield _text_piece("template", _canonical(tools))


def pieces_of_messages(messages: Sequence[object], max_pieces: int | None = None) -> Iterator[Piece]:
    for message in messages:
        yield from _of_message(message, max_pieces)


def pieces_of_text(text: str, max_pieces: int | None = None) -> Iterator[Piece]:
    for segment in segment_prompt(_opening(text, max_pieces)):
        yield _text_piece(segment.label, segment.text)


def pieces_of_tokens(tokens: Sequence[int]) -> Iterator[Piece]:
    for start in range(0, len(tokens), TOKEN_BLOCK):
        ids = tokens[start : start + TOKEN_BLOCK]
        yield Piece("other", np.asarray(ids, dtype="<u4").tobytes(), None, tokens=len(ids))


def messages_of_responses(instructions: object, given: object) -> list[Any] | None:
    """The conversation of a Responses API body as chat messages; None if it has no ``input``."""
    if isinstance(given, str):
        items: list[Any] = [{"role": "user", "content": given}]
    elif isinstance(given, list):
        items = [_as_message(item) for item in given]
    else:
        return None
    return [{"role": "system", "content": instructions}, *items] if isinstance(instructions, str) else items


def _as_message(item: object) -> object:
    if not isinstance(item, Mapping) or "role" in item:
        return item
    if item.get("type") == "function_call_output":
        output = item.get("output")
        return {"role": "tool", "content": output if isinstance(output, str | list) else _canonical(output)}
    if item.get("type") == "function_call":
        return {"role": "assistant", "tool_calls": [{key: item.get(key) for key in ("name", "arguments")}]}
    return {"role": "user", "content": [item]}  # a part outside a message, such as a picture


def _opening(text: str, max_pieces: int | None) -> str:
    """The beginning of a text that makes ``max_pieces`` pieces: a segment ends at a blank line or before a label."""
    if max_pieces is None:
        return text
    text = text[:MAX_TEXT_CHARS]
    if text.count("\n") <= max_pieces:  # every cut is at a line end, so there cannot be more pieces
        return text
    end = len(text)
    for rule in (_BLANK_LINE, LABEL_LINE):
        cut = next(islice(rule.finditer(text), max_pieces + 1, None), None)
        end = end if cut is None else min(end, cut.start())
    return text[:end]


def _of_message(message: object, max_pieces: int | None) -> Iterator[Piece]:
    if not isinstance(message, dict):
        return
    role = message.get("role")
    known = role if isinstance(role, str) and role in ROLE_LABELS else "user"
    content = message.get("content")
    if isinstance(content, str):
        yield from _segments(known, content, max_pieces)
    elif isinstance(content, list):
        for part in content:
            yield from _of_part(known, part, max_pieces)
    if calls := message.get("tool_calls"):
        yield _text_piece("assistant", _canonical(calls))


def _of_part(role: str, part: object, max_pieces: int | None) -> Iterator[Piece]:
    if isinstance(part, str):
        yield from _segments(role, part, max_pieces)
    elif isinstance(part, dict) and isinstance(part.get("text"), str):
        yield from _segments(role, part["text"], max_pieces)
    elif isinstance(part, dict):
        kind = part.get("type")
        media = kind if kind in MEDIA else "other"
        yield Piece("other", _canonical(part).encode("utf-8", "surrogatepass"), None, tokens=1, media=media)


def _segments(role: str, text: str, max_pieces: int | None) -> Iterator[Piece]:
    for segment in iter_segments(Message(role, _opening(text, max_pieces))):
        yield _text_piece(segment.label, segment.text)


def _text_piece(label: str, text: str) -> Piece:
    return Piece(label, text.encode("utf-8", "surrogatepass"), text)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
