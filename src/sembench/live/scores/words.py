"""The words of an answer as all scores count them: no case, punctuation or English articles; ideographs stand alone."""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ARTICLES: Final = frozenset({"a", "an", "the"})


def words_of(text: str) -> tuple[str, ...]:
    """An answer of articles alone keeps them: the option "A" is an answer."""
    words = tuple(_WORD.findall(text.casefold()))
    return tuple(word for word in words if word not in _ARTICLES) or words
