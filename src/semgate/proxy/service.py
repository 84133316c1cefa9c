"""Builds the proxy from its settings, and stops it without losing a record.

In: `ProxySettings`; out: an ASGI app to be served between `start` and `stop`. Called by the command and by tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from sembase.errors import ConfigurationError
from sembase.http.client import HttpClient
from sembase.http.server import HttpServer
from sembase.http.server_protocol import Limits
from sembase.jsonl import cut_torn_lines
from sembase.tokenizer import open_tokenizer
from semgate.http.faults import Send
from semgate.http.request_body import Receive
from semgate.http.served_paths import status_server
from semgate.http.tenant import TenantRule
from semgate.prompt.digest import Digests, open_secret
from semgate.proxy.app import Passing, ProxyApp
from semgate.proxy.guard import ProxyGuard, guard_options
from semgate.proxy.record import RecordMaker
from semgate.proxy.spans import SpanMaker, open_provider
from semgate.proxy.telemetry import ProxyTelemetry
from semgate.proxy.writer import PREFIX, start_trace_writer, trace_files
from semgate.settings import DEFAULT_PATHS, ProxySettings


class ProxyService:
    """Owns the client, the writer's thread and the spans."""

    def __init__(self, settings: ProxySettings, spans: SpanMaker | None = None) -> None:
        self._passing = _passing(settings)
        tokenizer = open_tokenizer(None if settings.tokenizer is None else str(settings.tokenizer))
        folder = settings.trace_output_dir
        secret = open_secret(settings.digest_secret_file, folder, "--trace-output-dir")
        torn_lines = cut_torn_lines(folder, PREFIX)
        self._spans = spans or (SpanMaker(open_provider(settings.otlp_endpoint)) if settings.otlp_endpoint else None)
        maker = RecordMaker(Digests(secret), redact_text=settings.redact_text, tokenizer=tokenizer)
        files = trace_files(
            folder, rotate_bytes=settings.trace_rotate_bytes, rotate_seconds=settings.trace_rotate_seconds
        )
        self.writer = start_trace_writer(
            maker.record_of,
            files,
            queue_records=settings.trace_queue_records,
            observe=self._spans.observe if self._spans is not None else None,
        )
        self.telemetry = ProxyTelemetry(self.writer, torn_lines)
        self._upstream = HttpClient(
            connect_seconds=settings.connect_seconds,
            first_byte_seconds=settings.proxy_timeout_seconds,
            idle_seconds=settings.idle_seconds,
            max_connections_per_origin=settings.max_connections,
            credentials=settings.upstream_credentials(),
        )
        tenants = TenantRule(secret, trust_tenant_header=settings.trust_tenant_header)
        options = guard_options(settings)
        self.guard = (
            ProxyGuard(options, self._upstream, self._passing.origin, self._passing.base_path) if options else None
        )
        if self.guard is not None:
            self.telemetry.observe_guard(self.guard.collect)
        self.app = ProxyApp(self._passing, self._upstream, tenants, self.writer, self.telemetry, self.guard)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """For other ASGI servers, which stop the app by a lifespan event."""
        if scope["type"] == "http":
            await self.app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.stop()
            await send({"type": "lifespan.shutdown.complete"})

    async def stop(self) -> None:
        """On return, the records of finished requests are on disk."""
        self.app.is_ready = False
        if self.guard is not None:
            await self.guard.close()
        await self._upstream.close()
        await asyncio.to_thread(self.writer.close)
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)


def open_server(service: ProxyService, settings: ProxySettings) -> HttpServer:
    return HttpServer(
        service.app,
        host=settings.host,
        port=settings.port,
        tls_cert_file=settings.tls_cert_file,
        tls_key_file=settings.tls_key_file,
        shutdown_seconds=settings.shutdown_seconds,
        limits=Limits(max_connections=settings.max_connections),
    )


async def serve(settings: ProxySettings, announce: Callable[[int], None]) -> None:
    """Until SIGTERM or Ctrl-C; ``announce`` is called with the port once it listens."""
    service = ProxyService(settings)
    status = status_server(settings, service.app.readiness, service.telemetry.text)
    try:
        server = open_server(service, settings)
        if status is not None:
            await status.start()
        announce(await server.start())
        await server.serve_until_signal()
    finally:
        await service.stop()
        if status is not None:
            await status.stop()


def _passing(settings: ProxySettings) -> Passing:
    if not settings.upstream_base_url:
        raise ConfigurationError(
            "no upstream: set --upstream-base-url or SEMANTICKV_UPSTREAM_BASE_URL, for example http://127.0.0.1:8001"
        )
    parts = urlsplit(settings.upstream_base_url)
    return Passing(
        origin=f"{parts.scheme}://{parts.netloc}",
        base_path=parts.path.rstrip("/").removesuffix("/v1"),
        paths=DEFAULT_PATHS,
        forward_authorization=settings.forward_authorization,
        max_body_bytes=settings.max_body_bytes,
        max_in_flight=settings.max_connections,
        min_first_byte_s=settings.min_first_byte_ms / 1e3,
    )
