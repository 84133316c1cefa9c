"""Windows in a model's own word pieces: as many as the model reads at once, so that nothing is silently truncated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from sembase.errors import ConfigurationError
from semblend.fingerprint.embed.windows import MAX_WINDOWS, overlapping_windows


class ModelWindows:
    """Cuts a text into rows of token ids, special tokens included, all of one length: no padding and no mask.

    A window holds the model's maximal sequence less its special tokens. Neighbours overlap by an eighth.
    """

    def __init__(self, tokenizer: Tokenizer, max_sequence: int, max_windows: int = MAX_WINDOWS) -> None:
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())  # a copy: the model's own keeps its settings
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        specials = self._tokenizer.encode("").ids
        if len(specials) != 2:
            raise ConfigurationError("unsupported tokenizer: expected one special token before a text and one after it")
        self._before, self._behind = specials
        self._size = max_sequence - len(specials)
        self._overlap = self._size // 8
        self._max_windows = max_windows

    def rows(self, text: str) -> NDArray[np.int64]:
        """One row per window; no rows for a text without a word."""
        pieces = np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        spans = overlapping_windows(len(pieces), self._size, self._overlap, self._max_windows)
        width = min(self._size, len(pieces))
        rows = np.empty((len(spans), width + 2), dtype=np.int64)
        rows[:, 0], rows[:, -1] = self._before, self._behind
        rows[:, 1:-1] = pieces[spans[:, :1] + np.arange(width)]
        return rows
