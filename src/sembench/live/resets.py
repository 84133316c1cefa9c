"""Caches emptied on purpose, and believed only when the server says so: 2xx, and no ``{"success": false}``.

An engine that still holds blocks of a finished request answers false until it has let them go, which an idle engine
may need a request for: it is nudged between tries.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sembase.errors import ConfigurationError

_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05
_TRIES_BETWEEN_NUDGES: Final = 5
_ABSENT: Final = frozenset({401, 403, 404, 405, 501})


class Poster(Protocol):
    async def post(self, url_or_path: str) -> tuple[int, bytes]: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a cache is not known to be empty. ``is_final``: asking again would not help; ``is_lost``: nobody answers."""

    url: str
    detail: str
    is_final: bool = False
    is_lost: bool = False


class Resets:
    """All of ``urls``, in order, each until it succeeds or patience ends."""

    def __init__(self, poster: Poster, urls: tuple[str, ...], nudge: Callable[[], Awaitable[object]]) -> None:
        self._poster = poster
        self._urls = urls
        self._nudge = nudge

    def __bool__(self) -> bool:
        return bool(self._urls)

    async def clear(self) -> Refusal | None:
        """None when every cache is known to be empty."""
        for url in self._urls:
            if (refusal := await self._clear_one(url)) is not None:
                return refusal
        return None

    async def require(self, option: str) -> None:
        """Before a run: what does not work now will not work for any item."""
        if (refusal := await self.clear()) is not None:
            raise ConfigurationError(
                f"{option} {refusal.url}: {refusal.detail}; vLLM has /reset_prefix_cache only with "
                "VLLM_SERVER_DEV_MODE=1, SGLang has /flush_cache"
            )

    async def _clear_one(self, url: str) -> Refusal | None:
        deadline = time.monotonic() + _PATIENCE_S
        tries = 0
        while (refusal := await self._try(url)) is not None:
            if refusal.is_final or time.monotonic() >= deadline:
                return refusal
            tries += 1
            if tries % _TRIES_BETWEEN_NUDGES == 0:
                await self._nudge()
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _try(self, url: str) -> Refusal | None:
        try:
            code, body = await self._poster.post(url)
        except ConnectionError as error:
            return Refusal(url, str(error), is_final=True, is_lost=True)
        if not 200 <= code < 300:
            return Refusal(url, f"answers {code}", is_final=code in _ABSENT)
        return Refusal(url, "answers that it did not succeed") if _says_no(body) else None


def _says_no(body: bytes) -> bool:
    try:
        said = json.loads(body)
    except ValueError:
        return False  # an empty or plain-text answer: the code is all there is
    return isinstance(said, dict) and said.get("success") is False
