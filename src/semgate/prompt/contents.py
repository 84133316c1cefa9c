"""A request's text as labelled, keyed contents: for policies that compare text, and for requests without token ids.

In: an inspected request and its body; out: contents in prompt order, keyed by model, salt and tenant, so that equal
texts of two tenants never match. About 20 us per KB of text; at most ``MAX_CONTENTS`` pieces and
``MAX_CONTENT_BYTES`` are read.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from sembase.labels import label_index
from semgate.http.request_body import Asked
from semgate.placement.view import Content
from semgate.prompt.pieces import prompt_pieces

BYTES_PER_TOKEN: Final = 4
MAX_CONTENTS: Final = 512
MAX_CONTENT_BYTES: Final = 1 << 20
# A picture is hundreds to thousands of tokens regardless of its bytes: engines scale it down.
MEDIA_TOKENS: Final = 1_024
# Limit for an unreadable body, which may contain pictures: their bytes say nothing about their tokens.
MAX_ESTIMATED_TOKENS: Final = 32_768
_SECRET: Final = secrets.token_bytes(32)


def contents_of(asked: Asked, body: bytes) -> tuple[Content, ...]:
    root = hashlib.blake2b(key=_SECRET, digest_size=16)
    for part in (asked.tenant, asked.model, asked.cache_salt, asked.lora):
        raw = b"" if part is None else b"=" + part.encode("utf-8", "surrogatepass")
        root.update(len(raw).to_bytes(8, "little") + raw)
    namespace = root.digest()
    found: list[Content] = []
    read_bytes = 0
    for piece in prompt_pieces(asked, body, MAX_CONTENTS):
        digest = hashlib.blake2b(piece.content, key=_SECRET, digest_size=8, salt=namespace).digest()
        tokens = piece.tokens or max(len(piece.content) // BYTES_PER_TOKEN, 1)
        tokens = tokens if piece.media is None else MEDIA_TOKENS
        found.append(Content(int.from_bytes(digest, "little"), label_index(piece.label), tokens))
        read_bytes += len(piece.content)
        if len(found) >= MAX_CONTENTS or read_bytes >= MAX_CONTENT_BYTES:
            break
    return tuple(found)


def estimate_tokens(asked: Asked) -> int:
    """The size of a prompt that was not tokenized: text by its length, each picture by a fixed size."""
    if asked.prompt_tokens is not None:
        return len(asked.prompt_tokens)
    if asked.prompt_text is not None:
        return len(asked.prompt_text) // BYTES_PER_TOKEN
    if asked.messages is None:
        return min(asked.body_bytes // BYTES_PER_TOKEN, MAX_ESTIMATED_TOKENS)
    chars = sum(_chars(each.get("content")) for each in asked.messages if isinstance(each, dict))
    return chars // BYTES_PER_TOKEN + MEDIA_TOKENS * asked.media_parts


def _chars(content: object) -> int:
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return sum(len(text) for text in texts if isinstance(text, str))
