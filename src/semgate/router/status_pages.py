"""The pages for probes and scrapers: /healthz (the process answers), /readyz (it can place requests), /metrics."""

from __future__ import annotations

import json
from typing import Final

from semgate.http.faults import Send, send_json
from semgate.router.gateway import Gateway
from semgate.router.metrics import CONTENT_TYPE

PATHS: Final = ("/healthz", "/readyz", "/metrics")


async def send_status_page(gateway: Gateway, path: str, send: Send) -> bool:
    """False where the path is none of these."""
    if path == "/healthz":
        await send_json(send, 200, b'{"status": "alive"}')
    elif path == "/readyz":
        reason = gateway.not_ready_because()
        said = {"status": "ready"} if reason is None else {"status": "not ready", "reason": reason}
        await send_json(send, 200 if reason is None else 503, json.dumps(said).encode())
    elif path == "/metrics":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", CONTENT_TYPE)]})
        await send({"type": "http.response.body", "body": gateway.metrics.text()})
    else:
        return False
    return True
