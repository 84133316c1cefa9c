"""The pieces of a request's prompt in the order the model sees them. Tools are decoded for conversations only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sembase.segment.pieces import Piece, pieces_of_messages, pieces_of_text, pieces_of_tokens, pieces_of_tools
from semgate.http.request_body import Asked


class _Tools(msgspec.Struct):
    tools: Any = None


_DECODER: Final = msgspec.json.Decoder(_Tools)


def prompt_pieces(asked: Asked, body: bytes, max_pieces: int | None = None) -> Iterator[Piece]:
    """``max_pieces``: the caller takes no more, so that segmenting can stop there."""
    if asked.messages is not None:
        yield from pieces_of_tools(_tools(body))
        yield from pieces_of_messages(asked.messages, max_pieces)
    elif asked.prompt_text is not None:
        yield from pieces_of_text(asked.prompt_text, max_pieces)
    elif asked.prompt_tokens is not None:
        yield from pieces_of_tokens(asked.prompt_tokens)


def _tools(body: bytes) -> object:
    try:
        return _DECODER.decode(body).tools
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
