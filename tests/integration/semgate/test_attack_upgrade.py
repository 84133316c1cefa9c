"""Smuggling by an upgrade: direct and behind real fronts, one whole request or none reaches an engine."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import uvicorn
from tests.attacks.fronts import FRONTS, FrontAbsentError, in_front_of
from tests.attacks.targets import TARGETS
from tests.attacks.upgrade import SAFE, VARIANTS, jdk_request, send, verdict
from tests.fakes.router_rig import router_rig

from semgate.router.app import RouterApp


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("target", TARGETS)
def test_no_second_request_reaches_the_engine(target: str, front: str, tmp_path: Path) -> None:
    async def act() -> dict[str, str]:
        async with TARGETS[target](tmp_path) as gate, in_front_of(front, gate.port, tmp_path / "front") as port:
            found = {}
            for variant in VARIANTS:
                await send(port, variant)
                found[variant.name] = verdict(variant, gate.seen())
            answered = await send(port, jdk_request())
            assert b" 200 " in answered.partition(b"\r\n")[0]
            assert len(gate.seen()) == 1
            return found

    try:
        found = asyncio.run(act())
    except FrontAbsentError as absent:
        pytest.skip(str(absent))
    assert {name: result for name, result in found.items() if result not in SAFE} == {}
    if front == "direct":
        assert set(found.values()) == {"one, whole"}


def test_another_asgi_server_is_not_led_astray_either(tmp_path: Path) -> None:
    """uvicorn's own protocol reads the hidden request; it must not reach an engine."""

    async def act() -> None:
        async with router_rig(tmp_path, "a") as rig:
            config = uvicorn.Config(RouterApp(rig.gateway), http="httptools", lifespan="off", log_config=None)
            server = uvicorn.Server(config)
            server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            listener = socket.create_server(("127.0.0.1", 0))
            serving = asyncio.create_task(server.serve([listener]))
            try:
                for variant in VARIANTS:
                    received = await send(listener.getsockname()[1], variant)
                    assert received.count(b"HTTP/1.1 400") == received.count(b"HTTP/1.1 ") == 1
            finally:
                server.should_exit = True
                await serving
            assert rig.replicas[0].requests == 0

    asyncio.run(act())
