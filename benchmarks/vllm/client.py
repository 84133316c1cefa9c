"""Requests to one server, in token ids: timed ones streamed, scored ones with the distribution at every position."""

from __future__ import annotations

import http.client
import itertools
import json
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

TOP_LOGPROBS = 1_000
TIMEOUT_S = 300.0
RESET_S = 120.0  # blocks may be held for a copy, an isolated prefill or an audit
_TOKEN = "token_id:"
_numbers = itertools.count()


MAX_SALT = 128
REFUSED_IN_SALTS = frozenset("@/\\\0")


class RequestFailedError(Exception):
    """The server rejected or aborted the request; the message has its error."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One greedy request. ``salt`` keeps the donors of one item from serving another; the engine refuses some marks."""

    prompt: Sequence[int]
    max_tokens: int
    salt: str
    reuse: bool = True
    capture: bool | None = False  # None leaves it to the server's policy
    forced: Sequence[int] = ()

    def __post_init__(self) -> None:
        if len(self.salt) > MAX_SALT or set(self.salt) & REFUSED_IN_SALTS:
            raise ValueError(f"vLLM refuses the cache salt {self.salt!r}")


@dataclass(frozen=True, slots=True)
class Position:
    """The model's distribution at one position: its most likely tokens, and the log-probability of the following
    one.
    """

    top: dict[int, float]
    following: float


@dataclass(frozen=True, slots=True)
class Reply:
    """``provenance`` is the connector's report in the body; streamed answers of this engine have none."""

    request_id: str
    tokens: tuple[int, ...]
    first_token_ms: float
    total_ms: float
    cached_tokens: int
    provenance: dict[str, Any] | None = None
    positions: tuple[Position, ...] = field(default=(), repr=False)


class Client:
    """Talks to one server. Hints are sent only to a server that has the connector."""

    def __init__(self, base_url: str, model: str, *, connector: bool) -> None:
        parts = urlsplit(base_url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)
        self._model = model
        self.connector = connector

    def timed(self, ask: Ask, *, top_logprobs: int = 0) -> Reply:
        """Stream; the clock runs from sending the encoded body to the first chunk with a token.

        With ``top_logprobs`` the reply has that many of the most likely tokens at every position.
        """
        request_id, body = self._body(ask, stream=True, logprobs=top_logprobs)
        started = time.perf_counter()
        first_ms, chunks = 0.0, []
        with self._send("/v1/completions", body) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[len(b"data: ") :])
                if not first_ms and chunk.get("choices"):
                    first_ms = _ms_since(started)
                chunks.append(chunk)
        total_ms = _ms_since(started)
        if not first_ms:
            raise RequestFailedError(f"no token received: {json.dumps(chunks)[:500]}")
        usage = next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage"))
        parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]
        tokens = tuple(_token_id(token) for part in parts for token in part["tokens"])
        positions = tuple(position for part in parts for position in _positions(part) if top_logprobs)
        return Reply(request_id, tokens, first_ms, total_ms, _cached(usage), positions=positions)

    def token_times(self, ask: Ask) -> Generator[float]:
        """Stream; the moment of each chunk with a token, by ``time.perf_counter``. Closing it ends the request."""
        _, body = self._body(ask, stream=True, logprobs=0)
        with self._send("/v1/completions", body) as answer:
            for line in answer:
                if line.startswith(b"data: {") and json.loads(line[len(b"data: ") :]).get("choices"):
                    yield time.perf_counter()

    def whole(self, ask: Ask, *, scored: bool = False) -> Reply:
        """One body with the connector's provenance and, when ``scored``, the distribution at every position."""
        request_id, body = self._body(ask, stream=False, logprobs=TOP_LOGPROBS if scored else 0)
        started = time.perf_counter()
        with self._send("/v1/completions", body) as answer:
            record = json.loads(answer.read())
        total_ms = _ms_since(started)
        logprobs = record["choices"][0]["logprobs"]
        positions = tuple(_positions(logprobs)) if scored else ()
        tokens = tuple(map(_token_id, logprobs["tokens"]))
        provenance = (record.get("kv_transfer_params") or {}).get("semblend")
        return Reply(request_id, tokens, total_ms, total_ms, _cached(record["usage"]), provenance, positions)

    def reset_exact_cache(self, *, with_donors: bool = False) -> None:
        """Clear the engine's own prefix cache; the connector's donors stay unless ``with_donors``."""
        path = "/reset_prefix_cache" + ("?reset_external=true" if with_donors else "")
        deadline = time.monotonic() + RESET_S
        while True:
            with self._send(path, b"") as answer:
                body = answer.read()
            if not body or json.loads(body).get("success", True):
                return
            if time.monotonic() > deadline:
                raise RequestFailedError("the prefix cache could not be reset: blocks are still held")
            time.sleep(0.05)

    def metrics(self) -> str:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()

    def _body(self, ask: Ask, *, stream: bool, logprobs: int) -> tuple[str, bytes]:
        request_id = f"bench{next(_numbers)}"
        body: dict[str, Any] = {
            "model": self._model,
            "request_id": request_id,
            "prompt": list(ask.prompt),
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_salt": ask.salt,
            "logprobs": logprobs,
            "return_tokens_as_token_ids": True,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if ask.forced:
            body["vllm_xargs"] = {"forced_tokens": list(ask.forced)}
        if self.connector:
            hints = {"reuse": ask.reuse, "capture": ask.capture}
            body["kv_transfer_params"] = {"semblend": {key: value for key, value in hints.items() if value is not None}}
        return request_id, json.dumps(body).encode()

    def _send(self, path: str, body: bytes) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        connection.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise RequestFailedError(f"{path} answered {answer.status}: {answer.read()[:500]!r}")
        return answer


def _positions(logprobs: dict[str, Any]) -> Iterator[Position]:
    for top, following in zip(logprobs["top_logprobs"], logprobs["token_logprobs"], strict=True):
        yield Position({_token_id(name): value for name, value in top.items()}, following)


def _cached(usage: dict[str, Any]) -> int:
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _token_id(name: str) -> int:
    return int(name.removeprefix(_TOKEN))


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
