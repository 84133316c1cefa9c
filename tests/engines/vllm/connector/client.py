"""Asks a vLLM server with the connector in token ids, and reads what it said about reuse, cache and likelihoods."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.models.known import SMOLLM2, KnownModel

TOP = 5
TIMEOUT_S = 600.0
_TOKEN = "token_id:"


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion, greedy unless there are several choices. ``salt`` is the tenant; ``None`` leaves things out."""

    prompt: Sequence[int]
    max_tokens: int = 1
    salt: str | None = None
    reuse: bool | None = None
    capture: bool | None = None
    recompute_fraction: float | None = None
    n: int = 1
    request_id: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def body(self, model: str, *, stream: bool) -> dict[str, Any]:
        named = ("reuse", "capture", "recompute_fraction")
        hints = {name: value for name in named if (value := getattr(self, name)) is not None}
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(self.prompt),
            "max_tokens": self.max_tokens,
            "temperature": 0 if self.n == 1 else 0.7,  # the engine refuses several greedy choices
            "ignore_eos": True,
            "logprobs": TOP,
            "return_tokens_as_token_ids": True,
            "n": self.n,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if hints:
            body["kv_transfer_params"] = {"semblend": hints}
        if self.salt is not None:
            body["cache_salt"] = self.salt
        return body | self.more


@dataclass(frozen=True, slots=True)
class Reply:
    """``tokens`` and ``top`` belong to the first choice; ``semblend`` is what the connector told the client."""

    request_id: str
    tokens: tuple[int, ...]
    top: tuple[dict[int, float], ...]
    prompt_tokens: int
    cached_tokens: int
    semblend: dict[str, Any] = field(repr=False)
    total_s: float = 0.0
    body: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def outcome(self) -> str:
        return str(self.semblend["outcome"])

    @property
    def reused_tokens(self) -> int:
        return int(self.semblend["reused_tokens"])

    @property
    def loaded_tokens(self) -> int:
        """Tokens of all runs, including those that were recomputed."""
        return sum(int(run["length"]) for run in self.semblend["runs"])

    @property
    def kept_tokens(self) -> int:
        """Loaded tokens without the fraction to recompute: what must be reported as reused."""
        return self.loaded_tokens - int((self.semblend["compute_share"] or 0.0) * self.loaded_tokens)


class RequestFailedError(Exception):
    """The server answered with something else than 200."""


class Client:
    def __init__(self, base_url: str, model: KnownModel = SMOLLM2) -> None:
        self.model = model
        parts = urllib.parse.urlsplit(base_url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)

    def ask(self, ask: Ask) -> Reply:
        started = time.monotonic()
        body = json.loads(self._post("/v1/completions", ask.body(self.model.name, stream=False), ask.request_id))
        return read_reply(body, time.monotonic() - started)

    def stream(self, ask: Ask) -> Generator[dict[str, Any]]:
        """The chunks as they come; closing the iterator early disconnects, which aborts the request."""
        connection = self._connect()
        try:
            answer = self._send(connection, "/v1/completions", ask.body(self.model.name, stream=True), ask.request_id)
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()

    def tokenize(self, text: str) -> list[int]:
        body = {"model": self.model.name, "prompt": text, "add_special_tokens": False}
        return [int(token) for token in json.loads(self._post("/tokenize", body))["tokens"]]

    def reset(self, *, donors: bool = False) -> None:
        """Empty the exact cache, and forget the donors too if asked. Retried while blocks wait for their copy."""
        deadline = time.monotonic() + 300.0
        path = "/reset_prefix_cache" + ("?reset_external=true" if donors else "")
        while not json.loads(self._post(path, {}))["success"]:
            if time.monotonic() > deadline:
                raise RequestFailedError("blocks are held although nothing runs: the cache could not be reset")
            time.sleep(0.1)

    def metrics(self) -> dict[str, float]:
        """Every sample of ``/metrics``, without the engine's own labels; others stay as ``{name="value"}``."""
        connection = self._connect()
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        samples: dict[str, float] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[_without_engine_labels(name)] = float(value)
        return samples

    def is_healthy(self) -> bool:
        connection = self._connect()
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)

    def _post(self, path: str, body: dict[str, Any], request_id: str | None = None) -> bytes:
        connection = self._connect()
        try:
            return self._send(connection, path, body, request_id).read()
        finally:
            connection.close()

    @staticmethod
    def _send(
        connection: http.client.HTTPConnection, path: str, body: dict[str, Any], request_id: str | None
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if request_id is not None:
            headers["X-Request-Id"] = request_id
        connection.request("POST", path, json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise RequestFailedError(f"{path} answered {answer.status}: {answer.read()[:500]!r}")
        return answer


def read_reply(body: dict[str, Any], total_s: float = 0.0) -> Reply:
    logprobs = body["choices"][0]["logprobs"]
    usage = body["usage"]
    return Reply(
        str(body["id"]),
        tuple(token_id(name) for name in logprobs["tokens"]),
        tuple({token_id(name): value for name, value in top.items()} for top in logprobs["top_logprobs"]),
        int(usage["prompt_tokens"]),
        cached_tokens(usage),
        (body.get("kv_transfer_params") or {}).get("semblend") or {},
        total_s,
        body,
    )


def cached_tokens(usage: dict[str, Any]) -> int:
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def token_id(name: str) -> int:
    return int(name.removeprefix(_TOKEN))


def first_difference(one: Reply, other: Reply) -> float:
    """Largest difference of a likely token's log probability at the first position, where both saw the same prompt."""
    return largest_difference(one.top[0], other.top[0])


def largest_difference(one: dict[int, float], other: dict[int, float]) -> float:
    """Over the tokens both list; infinite when the likeliest of one is not even listed by the other."""
    if max(one, key=one.__getitem__) not in other or max(other, key=other.__getitem__) not in one:
        return float("inf")
    return max(abs(one[token] - other[token]) for token in one.keys() & other.keys())


def _without_engine_labels(name: str) -> str:
    bare, brace, labels = name.partition("{")
    if not brace:
        return bare
    kept = [part for part in labels.rstrip("}").split(",") if not part.startswith(("engine=", "model_name="))]
    return f"{bare}{{{','.join(kept)}}}" if kept else bare
