"""A router and a proxy, each before an engine that notes what reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.fault_replica import FaultReplica
from tests.fakes.router_rig import router_rig

from semgate.proxy.service import ProxyService, open_server
from semgate.settings import ProxySettings


@dataclass(frozen=True)
class Target:
    port: int
    engine: FaultReplica

    def seen(self) -> list[tuple[str, bytes]]:
        """Path and body of every request at the engine since the last call."""
        found = [(each.path, each.body) for each in self.engine.seen]
        self.engine.seen.clear()
        return found


@asynccontextmanager
async def _router(folder: Path) -> AsyncIterator[Target]:
    async with router_rig(folder, "a", trust_tenant_header=True) as rig:
        yield Target(rig.port, rig.replicas[0])


@asynccontextmanager
async def _proxy(folder: Path) -> AsyncIterator[Target]:
    engine = FaultReplica(name="engine")
    await engine.start()
    settings = ProxySettings(
        upstream_base_url=engine.origin, trace_output_dir=folder / "traces", port=0, shutdown_seconds=5.0
    )
    try:
        service = ProxyService(settings)
        server = open_server(service, settings)
        try:
            yield Target(await server.start(), engine)
        finally:
            await server.stop()
            await service.stop()
    finally:
        await engine.die()


Opened = Callable[[Path], AbstractAsyncContextManager[Target]]
TARGETS: Final[Mapping[str, Opened]] = {"router": _router, "proxy": _proxy}
