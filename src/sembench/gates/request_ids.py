"""An engine's request id -> the item of the result. Engines add prefixes and suffixes to the ids they are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence, Set
from typing import Final

_PREFIX: Final = re.compile(r"^(?:chatcmpl|cmpl)-")
_SUFFIX: Final = re.compile(r"[-_]\d+$")
_NONCE: Final = re.compile(r"-[0-9a-f]{8}$")  # vLLM makes every id unique: cmpl-<id>-0-9bbbed82, chatcmpl-<id>-9bbbed82


def requests_of_result(engine_ids: Sequence[str], item_ids: Collection[str]) -> tuple[str, ...]:
    """The items the engine's requests belong to, each once. An ambiguous id belongs to none."""
    known = set(item_ids)
    return tuple(sorted({item for engine_id in engine_ids if (item := item_of(engine_id, known)) is not None}))


def carries_nonce(engine_id: str, item_id: str) -> bool:
    """Whether the engine added a nonce to the item's id, so that no other run of the item has the same id."""
    return bool(_NONCE.search(engine_id)) and item_of(_NONCE.sub("", engine_id), {item_id}) is not None


def item_of(engine_id: str, known: Set[str]) -> str | None:
    """The item in ``known`` that ``engine_id`` stands for; ``None`` if there is no such item or more than one."""
    if engine_id in known:
        return engine_id
    names = {engine_id, _PREFIX.sub("", engine_id)}
    names |= {_NONCE.sub("", name) for name in names}
    names |= {_SUFFIX.sub("", name) for name in names}
    matches = names & known
    return matches.pop() if len(matches) == 1 else None
