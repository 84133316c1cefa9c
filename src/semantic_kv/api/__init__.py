"""The simulator as a service (extra ``service``): what ``semantic-kv serve`` starts.

- ``ServiceSettings``: the cache, the latency model (see ``semantic_kv.calibrate.read_latency_model``), the ``Limits``.
- ``create_app(settings) -> FastAPI``: the application, for any ASGI server and for tests. All its state is its own.
- ``serve(settings, host=..., port=...)``: runs it with uvicorn until it is interrupted. There is no authentication:
  the default address is this machine's own.

Importing this needs nothing optional; both functions name the extra where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from semantic_kv.api.settings import Limits, ServiceSettings
from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import Registry

_PARTS: Final[Registry[Any]] = Registry("service part")
_PARTS.register("application", "semantic_kv.api.app:create_app")
_PARTS.register("server", "uvicorn:run")
_KEEP_ALIVE_S: Final = 5
_MOST_CONNECTIONS: Final = 64


def create_app(settings: ServiceSettings | None = None) -> Any:
    try:
        make = _PARTS.get("application")
    except ModuleNotFoundError:
        raise MissingDependencyError("fastapi", "service", "the service") from None
    return make(settings)


def serve(
    settings: ServiceSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    announce: Callable[[], None] | None = None,
) -> None:
    """``announce`` is called once nothing stands against serving but the port itself."""
    if not 1 <= port <= 65_535:
        raise ConfigurationError(f"port {port} is none; ports lie between 1 and 65535")
    app = create_app(settings)
    try:
        run = _PARTS.get("server")
    except ModuleNotFoundError:
        raise MissingDependencyError("uvicorn", "service", "the service") from None
    if announce is not None:
        announce()
    run(app, host=host, port=port, timeout_keep_alive=_KEEP_ALIVE_S, limit_concurrency=_MOST_CONNECTIONS)


__all__ = ["Limits", "ServiceSettings", "create_app", "serve"]
