"""The paths a gateway serves: patterns that it forwards, and its own pages /healthz, /readyz and /metrics.

Clients get the first two. All three are on a listener of their own, so that clients cannot fill its connections and
cannot read from the metrics what others send.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import unquote

from sembase.http.server import App, HttpServer
from semgate.http.faults import NOT_FOUND, Send, send_fault, send_json
from semgate.http.request_body import Receive
from semgate.settings import ServerSettings

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MODELS: Final = "/v1/models"
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


def decoded_path(target: str) -> str:
    """The path of a request's target, decoded once, as uvicorn decodes it; empty if it is not ASCII."""
    return unquote(target.partition("?")[0]) if target.isascii() else ""


def allows(method: str, path: str) -> bool:
    """Models are only read: a body sent to them would reach an engine without a salt."""
    return method in _READING or (method == "POST" and path != _MODELS and not path.startswith(f"{_MODELS}/"))


class ForwardedPaths:
    """Only paths meant for clients are forwarded: engines have others that stop, flush or reconfigure them."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._exact = frozenset(pattern for pattern in self._patterns if "*" not in pattern)

    def pattern_of(self, path: str) -> str | None:
        """The pattern that admits a decoded path, for metrics and records: unlike the path it contains no text of the
        client. None if the path must not be forwarded; one that climbs or could be decoded again never is."""
        if ".." in path or "%" in path or not path.isprintable():
            return None
        if path in self._exact:
            return path
        return next((pattern for pattern in self._patterns if fnmatchcase(path, pattern)), None)


Readiness = Callable[[], Mapping[str, str]]
Metrics = Callable[[], bytes]


async def send_own_page(send: Send, path: str, readiness: Readiness, metrics: Metrics | None = None) -> bool:
    """False if the path is none of our pages. Ready if ``readiness()["status"]`` is ``ready``, otherwise 503."""
    if path == "/healthz":
        await send_json(send, 200, b'{"status": "alive"}')
    elif path == "/readyz":
        found = readiness()
        await send_json(send, 200 if found["status"] == "ready" else 503, json.dumps(dict(found)).encode())
    elif path == "/metrics" and metrics is not None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", _METRICS_TYPE)]})
        await send({"type": "http.response.body", "body": metrics()})
    else:
        return False
    return True


def status_app(readiness: Readiness, metrics: Metrics) -> App:
    """Our own pages and nothing else, for probes and for Prometheus."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not await send_own_page(send, scope["path"], readiness, metrics):
            await send_fault(send, NOT_FOUND)

    return app


def status_server(settings: ServerSettings, readiness: Readiness, metrics: Metrics) -> HttpServer | None:
    """None if ``status_port`` is 0. Its connections are not counted with those of clients."""
    if settings.status_port == 0:
        return None
    return HttpServer(
        status_app(readiness, metrics),
        host=settings.status_host,
        port=settings.status_port,
        shutdown_seconds=1.0,
        flags=("--status-host", "--status-port"),
    )
