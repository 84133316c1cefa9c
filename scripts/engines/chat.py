"""One chat request to an OpenAI-style server, with what a look at caching needs. Standard library only."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Answer:
    """``cached_tokens`` is ``None`` when the server does not report it."""

    text: str
    prompt_tokens: int
    cached_tokens: int | None
    first_token_s: float
    total_s: float
    request_id: str


def served_model(base_url: str) -> str:
    """The name of the first model that the server lists."""
    with _direct.open(f"{base_url}/v1/models", timeout=30) as stream:
        return str(json.load(stream)["data"][0]["id"])


def ask(base_url: str, question: str, *, system: str = "", model: str, max_tokens: int = 32) -> Answer:
    """Stream one greedy answer."""
    messages = [{"role": "system", "content": system}] if system else []
    body = {
        "model": model,
        "messages": [*messages, {"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{base_url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    started = time.monotonic()
    first_s, lines = 0.0, []
    with _direct.open(request, timeout=300) as stream:
        for raw in stream:
            line = raw.decode().strip()
            if line.startswith("data: {"):
                lines.append(line.removeprefix("data: "))
                if not first_s and _text_of(json.loads(lines[-1])):
                    first_s = time.monotonic() - started
    return _answer(lines, first_s, time.monotonic() - started)


def _answer(lines: Sequence[str], first_token_s: float, total_s: float) -> Answer:
    chunks = [json.loads(line) for line in lines]
    usage = next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage"))
    details = usage.get("prompt_tokens_details") or {}
    text = "".join(_text_of(chunk) for chunk in chunks)
    return Answer(
        text, usage["prompt_tokens"], details.get("cached_tokens"), first_token_s, total_s, str(chunks[0]["id"])
    )


def _text_of(chunk: dict[str, list[dict[str, dict[str, str]]]]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices") or [])
