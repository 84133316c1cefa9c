"""A tokenizer without a model: words with their leading space, digits by threes, single signs, white space as it is.

Case and white space count, because they count for real tokenizers. Ids are hashes of the pieces, so that they are the
same in every process and on every machine.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import numpy as np

from sembench.tokenize.base import Tokenized

# Ideographs and kana stand alone: without spaces, a whole sentence would otherwise be one token.
_PIECE: Final = re.compile(
    r" ?[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"| ?[^\W\d_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
    r"| ?\d{1,3}"
    r"| ?[^\w\s]"
    r"|_+"
    r"|\s+(?!\S)|\s"
)
_ID_MASK: Final = 2**31 - 1


class _PieceIds(dict[str, int]):
    """Ids by piece, computed when first asked for."""

    def __missing__(self, piece: str) -> int:
        digest = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = self[piece] = int.from_bytes(digest, "big") & _ID_MASK
        return number


class WordTokenizer:
    is_model_tokenizer: Final = False
    digest: Final = None

    def __init__(self, name: str) -> None:
        self.name = name
        self._ids = _PieceIds()

    def encode(self, text: str) -> Tokenized:
        pieces = _PIECE.findall(text)
        ids = np.fromiter(map(self._ids.__getitem__, pieces), np.int64, len(pieces))
        # The pieces tile the text, so their lengths say where they stand.
        ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        return Tokenized(ids, np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(pieces)], ends)
