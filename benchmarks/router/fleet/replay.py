"""Sends turns at their times to one address and reads what the engines report; called by ``fleet.py``.

TTFT is from the moment the request is handed to the socket to the first chunk with text. Hits are the cached tokens of
the engine's own usage report. Requests that fail are counted by kind, never left out silently.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import psutil

from benchmarks.router.fleet.turns import Turn

_REQUEST_S = 120.0


@dataclass(slots=True)
class Replayed:
    """Of one run. ``late_ms`` says how far behind its plan the client itself was."""

    ttft_ms: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    hit_tokens: int = 0
    unreported: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    replicas: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0
    cpu_share: float = 0.0

    def as_record(self) -> dict[str, object]:
        return {
            "n": len(self.ttft_ms),
            "ttft_mean_ms": float(np.mean(self.ttft_ms)) if self.ttft_ms else None,
            "ttft_p50_ms": _quantile(self.ttft_ms, 0.5),
            "ttft_p90_ms": _quantile(self.ttft_ms, 0.9),
            "ttft_p99_ms": _quantile(self.ttft_ms, 0.99),
            "total_p50_ms": _quantile(self.total_ms, 0.5),
            "late_p99_ms": _quantile(self.late_ms, 0.99),
            "prompt_tokens": self.prompt_tokens,
            "hit_tokens": self.hit_tokens,
            "hit_share": self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None,
            "unreported": self.unreported,
            "failed": dict(self.failed),
            "replicas": dict(self.replicas),
            "wall_s": self.wall_s,
            "cpu_share": self.cpu_share,
        }


def _quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


async def replay(url: str, turns: Sequence[Turn], bodies: Sequence[bytes], *, session_header: bool) -> Replayed:
    """All turns; a session's next turn waits for its last one."""
    result = Replayed()
    sessions: dict[str, list[tuple[Turn, bytes]]] = {}
    for turn, body in zip(turns, bodies, strict=True):
        sessions.setdefault(turn.session, []).append((turn, body))
    psutil.cpu_percent(None)
    started = time.perf_counter()
    timeout = aiohttp.ClientTimeout(total=_REQUEST_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client, asyncio.TaskGroup() as group:
        for name, steps in sessions.items():
            headers = {"X-Session-ID": name} if session_header else {}
            group.create_task(_session(client, url, steps, headers, started, result))
    result.wall_s = time.perf_counter() - started
    result.cpu_share = psutil.cpu_percent(None) / 100.0
    return result


async def _session(
    client: aiohttp.ClientSession,
    url: str,
    steps: Sequence[tuple[Turn, bytes]],
    headers: dict[str, str],
    started: float,
    result: Replayed,
) -> None:
    for turn, body in steps:
        wait_s = started + turn.due_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
            result.late_ms.append(1000.0 * max(0.0, time.perf_counter() - started - turn.due_s))
        try:
            await _send(client, url, body, headers, result)
        except (aiohttp.ClientError, TimeoutError) as error:
            result.failed[type(error).__name__] += 1


async def _send(
    client: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str], result: Replayed
) -> None:
    sent = time.perf_counter()
    first, usage = 0.0, b""
    async with client.post(
        f"{url}/v1/completions", data=body, headers={"content-type": "application/json", **headers}
    ) as answer:
        if answer.status != 200:
            result.failed[f"status {answer.status}"] += 1
            await answer.read()
            return
        async for line in answer.content:
            if not first and line.startswith(b"data: {"):
                first = time.perf_counter()
            if b'"prompt_tokens"' in line:
                usage = line
        result.replicas[answer.headers.get("x-semblend-routing-worker", "?")] += 1
    if not first:
        result.failed["no token"] += 1
        return
    result.ttft_ms.append(1000.0 * (first - sent))
    result.total_ms.append(1000.0 * (time.perf_counter() - sent))
    _count(usage, result)


def _count(line: bytes, result: Replayed) -> None:
    if not line:
        result.unreported += 1
        return
    usage = json.loads(line.removeprefix(b"data: "))["usage"]
    result.prompt_tokens += usage["prompt_tokens"]
    result.hit_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
