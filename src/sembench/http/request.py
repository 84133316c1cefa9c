"""One live request as values, and the path, headers and body bytes it becomes for each kind of endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sembase.errors import ContractError
from sembase.http.reply import Headers

Endpoint = Literal["chat", "completions", "sglang_generate"]
PATHS: Final[Mapping[Endpoint, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "sglang_generate": "/generate",
}
# Greedy, and seeded for servers that draw anyway: two arms of a pair must differ by the cache alone.
_TEMPERATURE: Final = 0.0
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """``extra`` is merged into the body last; a key whose value is None there is taken out of the body.

    ``hints`` are for the adapter in the server; each kind of endpoint has its own field for them.
    ``stream`` off asks for the answer in one piece: without the time of its first token, and with what vLLM's adapter
    reports of it, which streams do not carry.
    ``keep_text`` off is for load: the reply then has times and token counts, but neither text nor logprobs.
    """

    request_id: str
    prompt: str | tuple[int, ...]
    max_tokens: int
    model: str
    endpoint: Endpoint = "chat"
    tenant: str | None = None
    template: str | None = None
    top_logprobs: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    keep_text: bool = True
    stream: bool = True
    hints: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.endpoint not in PATHS:
            raise ContractError(f"endpoint {self.endpoint!r} is not one of {', '.join(PATHS)}")
        if self.endpoint == "chat" and not isinstance(self.prompt, str):
            raise ContractError("a chat request takes text; send token ids to 'completions' or 'sglang_generate'")
        if self.max_tokens < 1:
            raise ContractError(f"max_tokens {self.max_tokens} is not at least 1")


def encode_headers(request: LiveRequest) -> Headers:
    headers = [(b"x-request-id", request.request_id.encode())]
    if request.tenant is not None:
        headers.append((b"x-tenant-id", request.tenant.encode()))
    if request.template is not None:
        headers.append((b"x-chat-template-id", request.template.encode()))
    return tuple(headers)


def encode_body(request: LiveRequest) -> bytes:
    body = _sglang_body(request) if request.endpoint == "sglang_generate" else _openai_body(request)
    body.update(request.extra)
    kept = {key: value for key, value in body.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _openai_body(request: LiveRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model or None,
        "max_tokens": request.max_tokens,
        "temperature": _TEMPERATURE,
        "seed": _SEED,
        "stream": request.stream,
        "stream_options": {"include_usage": True} if request.stream else None,
        "request_id": request.request_id,
        "cache_salt": request.tenant,
        "kv_transfer_params": None if request.hints is None else {"semblend": dict(request.hints)},
    }
    if request.endpoint == "chat":
        body["messages"] = [{"role": "user", "content": request.prompt}]
        if request.top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    else:
        body["prompt"] = request.prompt
        body["logprobs"] = request.top_logprobs
    return body


def _sglang_body(request: LiveRequest) -> dict[str, Any]:
    sampling: dict[str, Any] = {"temperature": _TEMPERATURE, "max_new_tokens": request.max_tokens}
    if request.hints is not None:
        sampling["custom_params"] = {"semblend": dict(request.hints)}
    body: dict[str, Any] = {
        "rid": request.request_id,
        "cache_salt": request.tenant,
        "sampling_params": sampling,
        "stream": request.stream,
        "text" if isinstance(request.prompt, str) else "input_ids": request.prompt,
    }
    if request.top_logprobs is not None:
        body |= {
            "return_logprob": True,
            "top_logprobs_num": request.top_logprobs,
            "return_text_in_logprobs": True,
        }
    return body
