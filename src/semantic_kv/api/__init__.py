"""The simulator as an HTTP service (extra ``service``), which ``kvmend simulate serve`` starts.

- ``ServiceSettings``: the cache, the latency model (see ``semantic_kv.calibrate.read_latency_model``), the ``Limits``.
- ``create_app(settings) -> FastAPI``: the application, for any ASGI server and for tests. Applications share no state.
- ``serve(settings, host=..., port=...)``: runs it with uvicorn until interrupted. There is no authentication, so it
  binds to localhost by default.

Importing this module needs no optional package; both functions name the missing extra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from semantic_kv.api.settings import Limits, ServiceSettings
from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import load_target

_KEEP_ALIVE_S: Final = 5
_MAX_CONNECTIONS: Final = 64


def create_app(settings: ServiceSettings | None = None) -> Any:
    try:
        make = load_target("semantic_kv.api.app:create_app")
    except ModuleNotFoundError:
        raise MissingDependencyError("fastapi", "service", "the service") from None
    return make(settings)


def serve(
    settings: ServiceSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8030,
    announce: Callable[[], None] | None = None,
) -> None:
    """``announce`` is called right before the server binds to the port."""
    if not 1 <= port <= 65_535:
        raise ConfigurationError(f"invalid port {port} (expected 1 to 65535)")
    app = create_app(settings)
    try:
        run = load_target("uvicorn:run")
    except ModuleNotFoundError:
        raise MissingDependencyError("uvicorn", "service", "the service") from None
    if announce is not None:
        announce()
    run(app, host=host, port=port, timeout_keep_alive=_KEEP_ALIVE_S, limit_concurrency=_MAX_CONNECTIONS)


__all__ = ["Limits", "ServiceSettings", "create_app", "serve"]
