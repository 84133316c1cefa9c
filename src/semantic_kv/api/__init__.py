"""The simulator as an HTTP service (extra ``service``), which ``kvmend simulate serve`` starts.

- ``ServiceSettings``: the cache, the latency model (see ``semantic_kv.calibrate.read_latency_model``), the ``Limits``.
- ``create_app(settings) -> FastAPI``: the application, for any ASGI server and for tests. Applications share no state.
- ``serve(settings, host=..., port=...)``: runs it on `sembase.http.server` until interrupted. There is no
  authentication, so it binds to localhost by default, and there answers only if the Host header names this machine.

Importing this module needs no optional package; both functions name the missing extra.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from semantic_kv.api.settings import Limits, ServiceSettings
from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import load_target

if TYPE_CHECKING:
    from sembase.http.server import HttpServer


def create_app(settings: ServiceSettings | None = None) -> Any:
    return _application(settings, is_local=False)


def serve(
    settings: ServiceSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8030,
    announce: Callable[[], None] | None = None,
) -> None:
    """``announce`` is called once the server has its port."""
    if not 1 <= port <= 65_535:
        raise ConfigurationError(f"invalid port {port} (expected 1 to 65535)")
    app = _application(settings, is_local=_is_loopback(host))
    try:
        open_server = load_target("sembase.http.server:HttpServer")
    except ModuleNotFoundError:
        raise MissingDependencyError("uvicorn", "service", "the service") from None
    asyncio.run(_run(open_server(app, host=host, port=port, extra="service"), announce))


async def _run(server: HttpServer, announce: Callable[[], None] | None) -> None:
    await server.start()
    if announce is not None:
        announce()
    await server.serve_until_signal()


def _application(settings: ServiceSettings | None, *, is_local: bool) -> Any:
    try:
        make = load_target("semantic_kv.api.app:create_app")
    except ModuleNotFoundError:
        raise MissingDependencyError("fastapi", "service", "the service") from None
    return make(settings, is_local=is_local)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


__all__ = ["Limits", "ServiceSettings", "create_app", "serve"]
