"""Probes and metrics have a listener of their own: clients can neither fill it nor read from it what others send."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.fakes.raw_client import Exchange, ask, chat
from tests.fakes.router_rig import router_rig
from tests.fakes.scripted_upstream import connected

from sembase.http.server import HttpServer
from sembase.http.server_protocol import Limits
from semgate.http.served_paths import status_app
from semgate.router.app import RouterApp

CONNECTIONS = 20


def test_probes_are_answered_while_clients_hold_every_connection(tmp_path: Path) -> None:
    async def act() -> None:
        async with router_rig(tmp_path) as rig:
            gateway = rig.gateway
            clients = HttpServer(
                RouterApp(gateway), host="127.0.0.1", port=0, limits=Limits(max_connections=CONNECTIONS)
            )
            status = HttpServer(status_app(gateway.readiness, gateway.metrics.text), host="127.0.0.1", port=0)
            try:
                port, status_port = await clients.start(), await status.start()
                async with AsyncExitStack() as held:
                    for _ in range(CONNECTIONS):
                        client = await held.enter_async_context(connected(port))
                        client.send("GET", "/healthz")
                        assert (await client.answer()).status == 200
                    refused = await Exchange.open(port)
                    assert (await refused.head())[0] == 503, "the table is full"
                    await refused.close()
                    for path in ("/healthz", "/readyz", "/metrics"):
                        assert (await ask(status_port, path, method="GET")).status == 200
            finally:
                await clients.stop()
                await status.stop()

    asyncio.run(act())


def test_clients_do_not_see_metrics_and_the_status_port_serves_nothing_else(tmp_path: Path) -> None:
    async def act() -> None:
        async with router_rig(tmp_path) as rig:
            assert (await ask(rig.port, body=chat())).status == 200
            assert (await ask(rig.port, "/metrics", method="GET")).status == 404
            gateway = rig.gateway
            status = HttpServer(status_app(gateway.readiness, gateway.metrics.text), host="127.0.0.1", port=0)
            try:
                port = await status.start()
                assert b"semgate_replica_ready" in (await ask(port, "/metrics", method="GET")).body
                for path in ("/v1/chat/completions", "/admin/replicas"):
                    assert (await ask(port, path, body=chat())).status == 404
                assert sum(each.requests for each in rig.replicas) == 1
            finally:
                await status.stop()

    asyncio.run(act())
