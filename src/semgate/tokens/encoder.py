"""Prompt text to token ids with the model's own ``tokenizer.json``; pieces between special tokens are cached.

A special token ends every merge, so the pieces of a conversation encode independently, and its history costs a look-up
per message instead of 0.2 ms per KB. If a tokenizer does not allow that, the whole text is encoded every time. The
cache is bounded by bytes: 4 per token plus about 250 per piece.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from sembase.tokenizer import read_tokenizer

DEFAULT_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
_ENTRY_BYTES: Final = 250

# Normalizers that give the same result for a piece alone and inside a text.
_LOCAL_NORMALIZERS: Final = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Replace"})
_TEXTS: Final = ("Hello world", " leading and trailing ", "line\n\n\nlines", "123 abc\t", "Zürich 中文 🙂", "a")

_SECRET: Final = secrets.token_bytes(32)
Tokens = NDArray[np.uint32]


class Encoder:
    """Safe to call from several threads."""

    def __init__(self, path: Path, *, remembered_bytes: int = DEFAULT_REMEMBERED_BYTES) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"--tokenizer: {path} cannot be read: {error.strerror}") from error
        self._tokenizer = read_tokenizer(content, path, "gateway")
        self._special = self._special_tokens(json.loads(content))
        self._remembered: OrderedDict[bytes, Tokens] = OrderedDict()
        self._bytes_left = remembered_bytes
        self._max_bytes = remembered_bytes
        self._lock = threading.Lock()

    @property
    def encodes_pieces(self) -> bool:
        return self._special is not None

    def encode(self, text: str, *, add_special_tokens: bool) -> Tokens:
        """``add_special_tokens`` as in the engine: a beginning token for a plain prompt, none for a rendered chat."""
        if self._special is None or add_special_tokens:
            return self._encode_whole(text, add_special_tokens)
        parts: list[Tokens] = []
        for piece, special in self._pieces(text):
            parts.append(np.array([special], np.uint32) if special is not None else self._encode_piece(piece))
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def _encode_whole(self, text: str, add_special_tokens: bool) -> Tokens:
        return np.array(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids, np.uint32)

    def _pieces(self, text: str) -> list[tuple[str, int | None]]:
        assert self._special is not None
        pattern, ids = self._special
        return [(piece, ids.get(piece)) for piece in pattern.split(text) if piece]

    def _encode_piece(self, piece: str) -> Tokens:
        key = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), key=_SECRET, digest_size=16).digest()
        with self._lock:
            known = self._remembered.get(key)
            if known is not None:
                self._remembered.move_to_end(key)
                return known
        tokens = self._encode_whole(piece, False)
        with self._lock:
            if key not in self._remembered and tokens.nbytes + _ENTRY_BYTES <= self._max_bytes:
                self._remembered[key] = tokens
                self._bytes_left -= tokens.nbytes + _ENTRY_BYTES
            while self._bytes_left < 0:
                _, oldest = self._remembered.popitem(last=False)
                self._bytes_left += oldest.nbytes + _ENTRY_BYTES
        return tokens

    def _special_tokens(self, spec: dict[str, Any]) -> tuple[re.Pattern[str], dict[str, int]] | None:
        """The pattern that splits at special tokens; ``None`` if splitting would change the result."""
        added = [one for one in spec.get("added_tokens") or [] if one.get("special")]
        contextual = any(one.get(flag) for one in added for flag in ("lstrip", "rstrip", "single_word", "normalized"))
        if not added or contextual or not _is_local(spec):
            return None
        ids = {str(one["content"]): int(one["id"]) for one in added}
        longest_first = sorted(ids, key=len, reverse=True)
        pattern = re.compile("(" + "|".join(re.escape(content) for content in longest_first) + ")")
        mark = longest_first[0]
        for before in _TEXTS:
            for after in _TEXTS:
                separate = [*self._encode_whole(before, False), ids[mark], *self._encode_whole(after, False)]
                if separate != self._encode_whole(before + mark + after, False).tolist():
                    return None
        return pattern, ids


def _is_local(spec: dict[str, Any]) -> bool:
    normalizer = spec.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    return all(step.get("type") in _LOCAL_NORMALIZERS for step in steps)
