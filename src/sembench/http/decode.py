"""The payloads of a finished stream: text, usage, logprobs, backend evidence, or the error the server put into it.

Nothing a server sends may raise here: what does not have the expected shape is not measured, and what is not JSON is a
broken stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sembench.http.reply import TokenLogprobs
from sembench.http.request import Endpoint


@dataclass(slots=True)
class Decoded:
    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    backend: Mapping[str, Any] | None = None
    fault: str = ""


def decode(endpoint: Endpoint, payloads: Iterable[bytes]) -> Decoded:
    decoded = Decoded()
    pieces: list[str] = []
    for payload in payloads:
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError) as error:
            decoded.fault = f"an event is not JSON: {error}"
            continue
        if not isinstance(event, dict):
            continue
        if fault := _fault(event):
            decoded.fault = fault
        elif endpoint == "sglang_generate":
            _take_generated(decoded, event)
        else:
            pieces.append(_take_choice(decoded, event))
    decoded.text = decoded.text or "".join(pieces)
    return decoded


def _take_choice(decoded: Decoded, event: Mapping[str, Any]) -> str:
    usage = _object(event.get("usage"))
    if usage:
        decoded.prompt_tokens = _count(usage.get("prompt_tokens"))
        decoded.completion_tokens = _count(usage.get("completion_tokens"))
        decoded.cached_tokens = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    if evidence := _object(_object(event.get("kv_transfer_params")).get("semblend")):
        decoded.backend = evidence
    choice = _object(next(iter(_list(event.get("choices"))), None))
    logprobs = _object(choice.get("logprobs"))
    decoded.logprobs += _chat_logprobs(logprobs) if "content" in logprobs else _completion_logprobs(logprobs)
    delta = _object(choice.get("delta"))
    pieces = (delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content"), choice.get("text"))
    return "".join(piece for piece in pieces if isinstance(piece, str))


def _take_generated(decoded: Decoded, event: Mapping[str, Any]) -> None:
    """Each event holds everything so far, so the last one counts."""
    meta = _object(event.get("meta_info"))
    decoded.text = event["text"] if isinstance(event.get("text"), str) else decoded.text
    decoded.prompt_tokens = _count(meta.get("prompt_tokens"))
    decoded.completion_tokens = _count(meta.get("completion_tokens"))
    decoded.cached_tokens = _count(meta.get("cached_tokens"))
    # Our adapter speaks with the first token only, in a list of one entry per token.
    earlier = _object(_object(decoded.backend).get("semblend"))
    said = next(filter(None, map(_object, _list(meta.get("semblend")))), earlier)
    told = {key: value for key, value in meta.items() if not key.endswith("logprobs")}
    decoded.backend = (told | {"semblend": said, **said} if said else told) or None
    tops = _list(meta.get("output_top_logprobs"))
    decoded.logprobs = [
        TokenLogprobs(name, value, dict(filter(None, map(_sglang_token, _list(tops[i] if i < len(tops) else None)))))
        for i, entry in enumerate(_list(meta.get("output_token_logprobs")))
        if (named := _sglang_token(entry)) is not None
        for name, value in (named,)
    ]


def _sglang_token(entry: object) -> tuple[str, float] | None:
    """``[logprob, token id, text or null]``."""
    values = _list(entry)
    logprob = _float(values[0]) if len(values) >= 2 else None
    if logprob is None:
        return None
    return str(values[2] if len(values) > 2 and values[2] is not None else values[1]), logprob


def _chat_logprobs(logprobs: Mapping[str, Any]) -> list[TokenLogprobs]:
    found = []
    for entry in map(_object, _list(logprobs.get("content"))):
        logprob = _float(entry.get("logprob"))
        if logprob is None:
            continue
        alternatives = (
            (_object(top).get("token"), _float(_object(top).get("logprob"))) for top in _list(entry.get("top_logprobs"))
        )
        top = {str(token): value for token, value in alternatives if value is not None}
        found.append(TokenLogprobs(str(entry.get("token")), logprob, top))
    return found


def _completion_logprobs(logprobs: Mapping[str, Any]) -> list[TokenLogprobs]:
    tokens, values = _list(logprobs.get("tokens")), _list(logprobs.get("token_logprobs"))
    tops = _list(logprobs.get("top_logprobs"))
    found = []
    for i, (token, value) in enumerate(zip(tokens, values, strict=False)):
        logprob = _float(value)
        if logprob is None:
            continue
        top = _object(tops[i] if i < len(tops) else None)
        found.append(TokenLogprobs(str(token), logprob, {k: v for k, v in top.items() if _float(v) is not None}))
    return found


def _fault(event: Mapping[str, Any]) -> str:
    """``{"error": {...}}`` or, in older servers, ``{"object": "error", ...}``."""
    error = event if event.get("object") == "error" else event.get("error")
    if not error:
        return ""
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
