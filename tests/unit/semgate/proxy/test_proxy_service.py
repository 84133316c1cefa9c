"""The proxy on a foreign ASGI server: lifespan starts and stops it."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from tests.fakes.scripted_upstream import Call, scripted
from tests.waiting import PATIENCE_S

from semgate.proxy.service import ProxyService
from semgate.settings import ProxySettings


def test_lifespan_stops_the_writer(tmp_path: Path) -> None:
    async def act() -> None:
        service = ProxyService(ProxySettings(upstream_base_url="http://127.0.0.1:1", trace_output_dir=tmp_path))
        received = ["lifespan.startup", "lifespan.shutdown"]
        sent: list[str] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": received.pop(0)}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message["type"])

        await service({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert not service.app.is_ready
        assert not service.writer._thread.is_alive()

    asyncio.run(act())


def test_a_departure_is_noticed_on_a_foreign_server_too(tmp_path: Path) -> None:
    async def silent(call: Call) -> None:
        await call.gone.wait()

    async def act() -> None:
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": b'{"prompt": "a"}'},
            {"type": "http.disconnect"},
        ]
        sent: list[Any] = []

        async def receive() -> MutableMapping[str, Any]:
            await asyncio.sleep(0)
            return messages.pop(0)

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions"}
        async with asyncio.timeout(PATIENCE_S), scripted(silent) as upstream:
            service = ProxyService(ProxySettings(upstream_base_url=upstream.origin, trace_output_dir=tmp_path))
            await service(scope | {"query_string": b"", "headers": []}, receive, send)
            await service.stop()
        assert sent == []
        assert service.writer.counts.written == 1

    asyncio.run(act())
