"""A proxy on loopback in front of a scripted server, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.scripted_upstream import EVENTS_HEAD, Call, Script, ScriptedUpstream, scripted
from tests.waiting import PATIENCE_S

from sembase.http.server import HttpServer
from semgate.http.served_paths import status_app
from semgate.proxy.service import ProxyService, open_server
from semgate.settings import ProxySettings

SRC = Path(__file__).parents[4] / "src"
CHAT = "/v1/chat/completions"


@dataclass
class Running:
    port: int
    status_port: int
    upstream: ScriptedUpstream
    service: ProxyService
    folder: Path

    def records(self) -> list[dict[str, Any]]:
        """Complete once the proxy has stopped."""
        lines = [line for path in sorted(self.folder.glob("trace-*.jsonl")) for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines]


@asynccontextmanager
async def proxying(script: Script, folder: Path, **changed: Any) -> AsyncIterator[Running]:
    async with scripted(script) as upstream:
        given: dict[str, Any] = {
            "upstream_base_url": upstream.origin,
            "trace_output_dir": folder,
            "port": 0,
            "shutdown_seconds": PATIENCE_S,
        }
        settings = ProxySettings(**(given | changed))
        service = ProxyService(settings)
        server = open_server(service, settings)
        status = HttpServer(status_app(service.app.readiness, service.telemetry.text), host="127.0.0.1", port=0)
        try:
            yield Running(await server.start(), await status.start(), upstream, service, folder)
        finally:
            await server.stop()
            await status.stop()
            await service.stop()
            while server.open_connections:
                await asyncio.sleep(0)


@asynccontextmanager
async def proxy_process(upstream: str, folder: Path, *flags: str) -> AsyncIterator[tuple[int, int]]:
    """A real ``semgate proxy``: its port and process id; what it prints is in ``folder / printed``. SIGTERM ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    printed = folder / "printed"
    with printed.open("wb") as stream:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "semgate", "proxy", "--port", "0", "--upstream-base-url", upstream),
            *("--trace-output-dir", str(folder / "traces"), "--log-level", "debug", *flags),
            stdout=stream,
            stderr=stream,
            cwd=folder,
            env={"PYTHONPATH": str(SRC), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            while b"proxy on http://127.0.0.1:" not in printed.read_bytes():
                assert running.returncode is None, printed.read_text()
                await asyncio.sleep(0.05)
            yield int(printed.read_text().partition("127.0.0.1:")[2].split(" ")[0]), running.pid
            running.send_signal(signal.SIGTERM)
            assert await running.wait() == 0, printed.read_text()
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()


def play(act: Callable[[], Coroutine[Any, Any, None]], patience_s: float = PATIENCE_S) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(patience_s):
            await act()

    asyncio.run(bounded())


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
TOKEN = event({"choices": [{"index": 0, "delta": {"content": "word"}}]})
USAGE = event(
    {
        "choices": [],
        "usage": {"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16}},
    }
)
DONE = event(b"[DONE]")


async def stream_three_tokens(call: Call) -> None:
    call.write(EVENTS_HEAD)
    for piece in (ROLE, TOKEN, TOKEN, TOKEN, USAGE + DONE):
        call.chunk(piece)
    call.end()


def chat_body(*contents: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": content} for content in contents]
    return json.dumps({"model": "m", "stream": True, "messages": messages} | more).encode()
