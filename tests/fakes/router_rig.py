"""A whole router on a free port in front of fault replicas, in the test's own loop; everything is ended on leaving."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.fault_replica import FaultReplica
from tests.waiting import PATIENCE_S

from sembase.http.server import HttpServer
from semgate.router.app import RouterApp
from semgate.router.gateway import Gateway
from semgate.settings import RouterSettings

SECRET = b"a secret of thirty-two bytes at least"


@dataclass(frozen=True)
class Rig:
    gateway: Gateway
    port: int
    replicas: tuple[FaultReplica, ...]

    def replica(self, name: str) -> FaultReplica:
        return next(each for each in self.replicas if each.name == name)

    def stop_clocks(self) -> None:
        """No breaker closes, however long the machine stalls."""
        for each in self.gateway.roster.fleet:
            each._clock_s = partial(float, each._clock_s())


@asynccontextmanager
async def router_rig(
    folder: Path,
    *names: str,
    shutdown_seconds: float = PATIENCE_S,
    announced: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """Health checks and load reports are off unless asked for, and no limit of seconds is reached by a machine that
    stalls: what a request meets must be what the test arranged.

    ``announced``: by replica, what follows its URL and name, such as ``;events=tcp://..``.
    """
    replicas = tuple(FaultReplica(name=name, tls=tls) for name in names or ("a", "b"))
    for each in replicas:
        await each.start()
    wanted: dict[str, Any] = {
        "replicas": tuple(f"{each.origin};name={each.name}{(announced or {}).get(each.name, '')}" for each in replicas),
        "routing_policy": "round_robin",
        "routing_output_dir": folder / "routing",
        "health_seconds": 0.0,
        "load_seconds": 0.0,
        "connect_seconds": PATIENCE_S,
        "first_byte_seconds": PATIENCE_S,
        "idle_seconds": PATIENCE_S,
        **settings,
    }
    try:  # also where the settings are refused: a replica left listening would be blamed on the next test
        gateway = Gateway(RouterSettings(**wanted), SECRET)
        server = HttpServer(RouterApp(gateway), host="127.0.0.1", port=0, shutdown_seconds=shutdown_seconds)
        try:
            await gateway.start()
            yield Rig(gateway, await server.start(), replicas)
        finally:
            await server.stop()
            await gateway.stop()
    finally:
        for each in replicas:
            await each.die()
