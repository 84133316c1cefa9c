"""What a person at a terminal is told when the router starts; logs stay JSON for whoever reads them by machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sembase.streams import write_err
from semgate.settings import RouterSettings


class Said:
    """Nothing where stderr is no terminal: there the JSON lines say the same."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._is_watched = sys.stderr.isatty()

    def starting(self) -> None:
        if self._is_watched:
            write_err("semgate: starting (the first start compiles for up to half a minute)\n")

    def started(self, port: int, replicas: Sequence[str]) -> None:
        if not self._is_watched:
            return
        settings = self._settings
        scheme = "https" if settings.tls_cert_file is not None else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        to = ", ".join(replicas) or "the replicas that Kubernetes names"
        write_err(f"semgate: router on {scheme}://{host}:{port}, policy {settings.routing_policy}, to {to}\n")
