"""``Server`` for a real OpenAI-compatible server: streamed chat completions timed at the client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from semantic_kv.collect.chunks import read_answer
from semantic_kv.collect.request import OK, PromptRequest, Served
from sembase.errors import ConfigurationError
from sembase.http.client import Headers, HttpClient, HttpFault, describe_fault, split_url
from sembase.http.event_stream import EventScanner

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
        self._origin, path = split_url(base_url)
        self._prefix = path.rstrip("/").removesuffix("/v1")
        self._model = model
        self._timeout_s = timeout_s
        # identity: a compressed stream would be timed by its blocks.
        always = {"accept-encoding": "identity", "content-type": "application/json", **(headers or {})}
        self._headers: Headers = tuple((name.lower().encode(), value.encode()) for name, value in always.items())
        # The limits of the single steps are longer than that of the whole request, which therefore always ends it.
        step_s = 2.0 * timeout_s
        self._client = HttpClient(
            connect_seconds=step_s, first_byte_seconds=step_s, idle_seconds=step_s, max_connections_per_origin=1024
        )

    async def __aenter__(self) -> Self:
        try:
            if self._model is None:
                self._model = await self._first_model()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def ask(self, request: PromptRequest) -> Served:
        events = EventScanner(keep="all")
        body = json.dumps(self._body(request)).encode()
        sent_at = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._stream(body, request, events)
        except TimeoutError:
            status = f"no complete answer within {self._timeout_s:g} s"
        except HttpFault as fault:
            status = describe_fault(fault)
        total_ms = 1000.0 * (time.perf_counter() - sent_at)
        events.end(time.perf_counter())
        answer = read_answer(events)
        if status == OK and (answer.fault is not None or not events.done):
            status = answer.fault or "the stream ended without [DONE]"
        return Served(
            status=status,
            ttft_ms=1000.0 * (events.arrivals[0] - sent_at) if events.arrivals else None,
            total_ms=total_ms if status == OK else None,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            output_tokens=answer.output_tokens if answer.output_tokens is not None else (len(events.arrivals) or None),
            model_name=answer.model_name or self._model,
        )

    async def _stream(self, body: bytes, request: PromptRequest, events: EventScanner) -> str:
        headers = (*self._headers, (b"x-request-id", request.request_id.encode()))
        reply = await self._client.send(self._origin, "POST", self._prefix + _PATH, headers, body, on_body=events.feed)
        try:
            rest = await reply.read(_ERROR_BYTES)
        finally:
            reply.abort_now()
        return OK if reply.status == 200 else f"http {reply.status}: {rest.decode('utf-8', 'replace')}"

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
        url = f"{self._origin}{self._prefix}/v1/models"
        try:
            async with asyncio.timeout(min(self._timeout_s, 30.0)):
                status, body = await self._client.fetch("GET", url, headers=self._headers)
            if status == 200:
                return str(json.loads(body)["data"][0]["id"])
            why = f"http {status}"
        except TimeoutError:
            why = "no answer"
        except HttpFault as fault:
            why = describe_fault(fault)
        except (ValueError, LookupError, TypeError):
            why = "no list of models"
        raise ConfigurationError(f"{url}: {why}; start the server, or name the model")
