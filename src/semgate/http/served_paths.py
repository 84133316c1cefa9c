"""The paths a gateway serves: patterns that it forwards, and its own pages /healthz, /readyz and /metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from semgate.http.faults import Send, send_json

METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class ForwardedPaths:
    """Only paths meant for clients are forwarded: engines have others that stop, flush or reconfigure them."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._exact = frozenset(pattern for pattern in self._patterns if "*" not in pattern)

    def pattern_of(self, path: str) -> str | None:
        """The pattern that admits a path, for metrics and records: unlike the path it contains no text of the client.
        None if the path must not be forwarded."""
        if ".." in path:
            return None
        if path in self._exact:
            return path
        return next((pattern for pattern in self._patterns if fnmatchcase(path, pattern)), None)


async def send_own_page(
    send: Send, path: str, readiness: Callable[[], Mapping[str, str]], metrics: Callable[[], bytes]
) -> bool:
    """False if the path is none of our pages. Ready if ``readiness()["status"]`` is ``ready``, otherwise 503."""
    if path == "/healthz":
        await send_json(send, 200, b'{"status": "alive"}')
    elif path == "/readyz":
        found = readiness()
        await send_json(send, 200 if found["status"] == "ready" else 503, json.dumps(dict(found)).encode())
    elif path == "/metrics":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", _METRICS_TYPE)]})
        await send({"type": "http.response.body", "body": metrics()})
    else:
        return False
    return True
