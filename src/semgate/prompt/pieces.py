"""A request's prompt as labelled blocks, from messages, tools, media, text or token ids.

In: `Asked` and the body; out: pieces in the order the model sees them; messages without text are left out. Lazy: a
caller that sets ``max_pieces`` pays only for the pieces it takes. Tools nested too deep raise RecursionError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from sembase.segment import Message, segment_messages, segment_prompt
from sembase.segment.messages import ROLE_LABELS
from sembase.segment.rules import LABEL_LINE
from semgate.http.request_body import Asked

TOKEN_BLOCK: Final = 128
MAX_TEXT_CHARS: Final = 1 << 20  # of one text, if the caller sets max_pieces
_BLANK_LINE: Final = re.compile(r"\n[ \t]*\n\s*")
MEDIA: Final = ("image_url", "input_image", "input_audio", "audio_url", "video_url", "file")


class _Tools(msgspec.Struct):
    tools: Any = None


_DECODER: Final = msgspec.json.Decoder(_Tools)


@dataclass(frozen=True, slots=True)
class Piece:
    """``content`` is the input of its digest; ``text`` is None if there is no text to tokenize."""

    label: str
    content: bytes
    text: str | None
    tokens: int | None = None
    media: str | None = None


def prompt_pieces(asked: Asked, body: bytes, max_pieces: int | None = None) -> Iterator[Piece]:
    """``max_pieces``: the caller takes no more, so that segmenting can stop there."""
    if asked.messages is not None:
        yield from _tools(body)
        for message in asked.messages:
            yield from _of_message(message, max_pieces)
    elif asked.prompt_text is not None:
        for segment in segment_prompt(_opening(asked.prompt_text, max_pieces)):
            yield _text_piece(segment.label, segment.text)
    elif asked.prompt_tokens is not None:
        for start in range(0, len(asked.prompt_tokens), TOKEN_BLOCK):
            ids = asked.prompt_tokens[start : start + TOKEN_BLOCK]
            yield Piece("other", np.asarray(ids, dtype="<u4").tobytes(), None, tokens=len(ids))


def _tools(body: bytes) -> Iterator[Piece]:
    """Chat templates put the tools in front of the conversation."""
    try:
        tools = _DECODER.decode(body).tools
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(tools, list) and tools:
        yield _text_piece("template", _canonical(tools))


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
    for segment in segment_messages((Message(role, _opening(text, max_pieces)),)):
        yield _text_piece(segment.label, segment.text)


def _text_piece(label: str, text: str) -> Piece:
    return Piece(label, text.encode("utf-8", "surrogatepass"), text)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
