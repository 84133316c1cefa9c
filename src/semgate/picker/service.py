"""Runs a picker until a signal stops it: gRPC, status and admin. For `kvmend pick`."""

from __future__ import annotations

import asyncio
import logging
import signal
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc.aio

from sembase.errors import ConfigurationError
from semgate.http.served_paths import status_server
from semgate.logs import log
from semgate.picker.ext_proc import ExternalProcessor
from semgate.picker.health import Health
from semgate.picker.pick import Picker
from semgate.router.operations.replicas import ReadSettings
from semgate.router.operations.settings_check import replicas_of
from semgate.router.service import admin_server, build_gateway
from semgate.settings import PickerSettings, RouterSettings

_MORE_BYTES: Final = 1 << 20  # of a message beyond the body it contains
_CONNECTION_PARTS: Final = 4  # one connection may open a quarter of all streams
# Connections whose peer is gone are found within 80 s, and idle ones closed; data planes may send pings of their own.
_KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_connection_idle_ms", 300_000),
)


async def serve(
    settings: PickerSettings, *, reload_settings: ReadSettings | None = None, config: Path | None = None
) -> None:
    check_addresses(settings)
    gateway = build_gateway(settings, reload_settings, config)
    processor = ExternalProcessor(Picker(gateway))
    server, port = grpc_server(settings, processor)
    admin = admin_server(gateway)
    status = status_server(settings, processor.readiness, gateway.metrics.text)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    try:
        if admin is not None:
            admin.bind()
        if status is not None:
            await status.start()
        await gateway.start()
        if admin is not None:
            await admin.start()
        await server.start()
        loop.add_signal_handler(signal.SIGHUP, gateway.reloader.try_reload, "SIGHUP")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        names = [replica.name for replica in gateway.roster.fleet]
        log(logging.INFO, "picker started", host=settings.host, port=port, policy=gateway.placer.policy, replicas=names)
        await stopped.wait()
        log(logging.INFO, "picker stopping")
        gateway.is_stopping = True  # not ready any more: the data plane turns to another picker
        await server.stop(settings.shutdown_seconds)
    finally:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await server.stop(None)
        if admin is not None:
            await admin.stop()
        await gateway.stop()
        if status is not None:
            await status.stop()


def grpc_server(settings: RouterSettings, processor: ExternalProcessor) -> tuple[Any, int]:
    """Bound, not started. With a certificate it speaks TLS."""
    options = [
        ("grpc.max_receive_message_length", settings.max_body_bytes + _MORE_BYTES),
        ("grpc.max_concurrent_streams", max(settings.max_connections // _CONNECTION_PARTS, 1)),
        ("grpc.so_reuseport", 0),
        *_KEEPALIVE,
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((processor.handler(), Health(processor).handler()))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    where = f"{host}:{settings.port}"
    try:
        if settings.tls_cert_file is None or settings.tls_key_file is None:
            return server, server.add_insecure_port(where)
        pair = (settings.tls_key_file.read_bytes(), settings.tls_cert_file.read_bytes())
        return server, server.add_secure_port(where, grpc.ssl_server_credentials([pair]))
    except RuntimeError:
        raise ConfigurationError(f"cannot listen on {where}: set --host and --port to a free address") from None


def check_addresses(settings: RouterSettings) -> None:
    """Data planes take ``ip:port``, not names."""
    if settings.discovery != "static":
        return
    for endpoint in replicas_of(settings, settings.replicas):
        host = urlsplit(endpoint.origin).hostname or ""
        try:
            ip_address(host)
        except ValueError:
            raise ConfigurationError(
                f"replica '{endpoint.origin}': the picker needs an IP address, not '{host}'"
            ) from None
