"""What a `semgate proxy` in front of a real server must do, whichever engine it is."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from scripts.engines.chat import ask
from scripts.engines.specs import SERVED_NAME
from tests.unit.semgate.proxy.running_proxy import proxy_process

CANARY = "zanzibar-locker"
NOTES = "\n".join(f"Note {n}: parcel {n * 37 % 101} went to {CANARY} {n * 17 % 53}." for n in range(60))
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetched(url: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with _direct.open(request, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def check_what_passes(server: str, folder: Path) -> None:
    """Streams, errors and lists as the engine gave them; the record has the figures it reported; no text is written."""
    async with proxy_process(server, folder) as (port, _):
        proxy = f"http://127.0.0.1:{port}"
        direct, seen = await _both(server, proxy, "/v1/models")
        assert (direct[0], _names(direct[1])) == (seen[0], _names(seen[1]))
        wrong = {"model": SERVED_NAME, "messages": "no list", "max_tokens": 1}
        direct, seen = await _both(server, proxy, "/v1/chat/completions", wrong)
        assert (seen[0] // 100, seen[0]) == (4, direct[0])
        assert seen[1].keys() == direct[1].keys()
        question = "What is the capital of France?"
        first = await asyncio.to_thread(ask, proxy, question, system=NOTES, model=SERVED_NAME)
        again = await asyncio.to_thread(ask, proxy, question, system=NOTES, model=SERVED_NAME)
        assert first.text
        assert again.cached_tokens
    lines = [line for path in (folder / "traces").glob("*.jsonl") for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    last = records[-1]
    assert last["observed_prefix_hit_tokens"] == again.cached_tokens
    assert last["observed_prefill_tokens"] == again.prompt_tokens - again.cached_tokens
    assert 0 < last["observed_ttft_ms"] <= 1_000 * again.first_token_s
    for path in folder.rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path.name


async def _both(server: str, proxy: str, path: str, body: dict[str, Any] | None = None) -> list[tuple[int, Any]]:
    return [await asyncio.to_thread(fetched, origin + path, body) for origin in (server, proxy)]


def _names(models: dict[str, Any]) -> list[str]:
    return [each["id"] for each in models["data"]]
