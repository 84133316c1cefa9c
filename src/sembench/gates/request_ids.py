"""An engine's name for a request -> the item of the result it is. Engines decorate the ids they are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

_PREFIX: Final = re.compile(r"^(?:chatcmpl|cmpl)-")
_SUFFIX: Final = re.compile(r"[-_]\d+$")


def requests_of_result(engine_ids: Sequence[str], item_ids: Collection[str]) -> tuple[str, ...]:
    """The items that the engine's requests are, each once. An id that could be two items is none."""
    known = set(item_ids)
    return tuple(sorted({item for engine_id in engine_ids if (item := _item(engine_id, known)) is not None}))


def _item(engine_id: str, known: set[str]) -> str | None:
    if engine_id in known:
        return engine_id
    bare = _PREFIX.sub("", engine_id)
    matches = {bare, _SUFFIX.sub("", bare), _SUFFIX.sub("", engine_id)} & known
    return matches.pop() if len(matches) == 1 else None
