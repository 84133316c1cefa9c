"""Token ids from an engine's own ``/tokenize``: for fleets whose tokenizer is not available here.

Each request costs a round trip and some of the engine's time; a reply that takes too long becomes ``None``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from sembase.http.client import HttpClient, HttpFault
from semgate.http.request_body import Asked
from semgate.tokens.local import given_tokens
from semgate.tokens.prompt import read_options

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
_CHAT_FIELDS: Final = ("model", "messages", "tools", "chat_template_kwargs", "add_generation_prompt")
_PROMPT_FIELDS: Final = ("model", "prompt")
_HEADERS: Final = ((b"content-type", b"application/json"),)


class _Answer(msgspec.Struct):
    tokens: list[int]


_DECODER: Final = msgspec.json.Decoder(_Answer)


class ChooseOrigin(Protocol):
    def __call__(self) -> str | None:
        """The replica to use now, such as ``http://10.0.0.7:8000``; ``None`` if none is available."""


@dataclass(slots=True)
class RemoteCounters:
    answered: int = 0
    failed: int = 0
    too_many_waiting: int = 0


class EngineTokens:
    def __init__(
        self, upstream: HttpClient, choose_origin: Callable[[], str | None], *, seconds: float = 0.25, waiting: int = 64
    ) -> None:
        self.counters = RemoteCounters()
        self._upstream = upstream
        self._choose_origin = choose_origin
        self._seconds = seconds
        self._max_waiting = waiting
        self._waiting = 0

    async def tokens_of(self, asked: Asked, body: bytes) -> NDArray[np.uint32] | None:
        if asked.prompt_tokens is not None:
            return given_tokens(asked.prompt_tokens)
        payload = tokenize_request(asked, body)
        origin = self._choose_origin()
        if payload is None or origin is None:
            return None
        if self._waiting >= self._max_waiting:
            self.counters.too_many_waiting += 1
            return None
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                tokens = await self._ask(origin, payload)
        except (HttpFault, TimeoutError):
            tokens = None
        finally:
            self._waiting -= 1
        if tokens is None:
            self.counters.failed += 1
        else:
            self.counters.answered += 1
        return tokens

    async def _ask(self, origin: str, payload: bytes) -> NDArray[np.uint32] | None:
        reply = await self._upstream.send(origin, "POST", "/tokenize", _HEADERS, payload)
        whole = bytearray()
        try:
            async for chunk in reply.chunks():
                whole += chunk
                if len(whole) > MAX_ANSWER_BYTES:
                    return None
        finally:
            await reply.abort()
        if reply.status != 200:
            return None
        try:
            return given_tokens(tuple(_DECODER.decode(bytes(whole)).tokens))
        except msgspec.DecodeError:
            return None

    async def close(self) -> None:
        """Leaves the upstream open: its owner closes it."""


def tokenize_request(asked: Asked, body: bytes) -> bytes | None:
    """The body for ``/tokenize``; ``None`` if its reply could differ from the ids the engine will see."""
    if asked.media_parts or read_options(body) is None:
        return None
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        return None
    fields = _CHAT_FIELDS if asked.messages is not None else _PROMPT_FIELDS
    payload: dict[str, Any] = {name: whole[name] for name in fields if whole.get(name) is not None}
    if "messages" not in payload:
        if asked.prompt_text is None:
            return None
        payload["prompt"] = asked.prompt_text
        payload["add_special_tokens"] = whole.get("add_special_tokens", True)
    return json.dumps(payload).encode()
