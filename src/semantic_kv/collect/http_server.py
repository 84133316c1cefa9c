"""A real OpenAI-compatible server behind ``Server``: streamed chat completions over httpx, timed at the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx

from semantic_kv.collect.chunks import AnswerStream
from semantic_kv.collect.request import OK, PromptRequest, Served
from sembase.errors import ConfigurationError

_PATH: Final = "/v1/chat/completions"
_ERROR_BYTES: Final = 300


class HttpServer:
    """An async context manager. ``timeout_s`` bounds each request as a whole."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        timeout_s: float = 300.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"'{base_url}' is no address of a server; it looks like http://host:port")
        self._root = base_url.rstrip("/").removesuffix("/v1")
        self._model = model
        self._timeout_s = timeout_s
        # identity: a compressed stream would be timed by its blocks. trust_env off: no unseen proxy before the clock.
        self._client = httpx.AsyncClient(
            headers={"accept-encoding": "identity", **(headers or {})}, timeout=None, trust_env=False
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        try:
            if self._model is None:
                self._model = await self._first_model()
        except BaseException:
            await self._client.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def ask(self, request: PromptRequest) -> Served:
        answer = AnswerStream()
        body = self._body(request)
        sent_at = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._stream(body, request, answer)
        except TimeoutError:
            status = f"no complete answer within {self._timeout_s:g} s"
        except httpx.HTTPError as error:
            status = f"{type(error).__name__}: {error}".rstrip(": ")
        total_ms = 1000.0 * (time.perf_counter() - sent_at)
        if status == OK and (answer.fault is not None or not answer.done):
            status = answer.fault or "the stream ended without [DONE]"
        first = answer.first_token_at
        return Served(
            status=status,
            ttft_ms=None if first is None else 1000.0 * (first - sent_at),
            total_ms=total_ms if status == OK else None,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            output_tokens=answer.output_tokens if answer.output_tokens is not None else (answer.tokens_seen or None),
            model_name=answer.model_name or self._model,
        )

    async def _stream(self, body: dict[str, Any], request: PromptRequest, answer: AnswerStream) -> str:
        headers = {"x-request-id": request.request_id}
        async with self._client.stream("POST", self._root + _PATH, json=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                said = (await response.aread())[:_ERROR_BYTES].decode("utf-8", "replace")
                return f"http {response.status_code}: {said}"
            async for piece in response.aiter_raw():
                answer.feed(piece, time.perf_counter())
            answer.feed(b"\n", time.perf_counter())
        return OK

    def _body(self, request: PromptRequest) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def _first_model(self) -> str:
        try:
            async with asyncio.timeout(min(self._timeout_s, 30.0)):
                answer = await self._client.get(f"{self._root}/v1/models")
            return str(answer.raise_for_status().json()["data"][0]["id"])
        except TimeoutError:
            why = "no answer"
        except httpx.HTTPError as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
        except (ValueError, LookupError, TypeError):
            why = "no list of models"
        raise ConfigurationError(f"{self._root}/v1/models: {why}; start the server, or name the model")
