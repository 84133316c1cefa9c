"""Runs a router until a signal stops it: the ports of clients, status and admin, the banner. For `kvmend route`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sembase.http.server import HttpServer
from sembase.http.server_protocol import Limits
from sembase.streams import write_err
from semgate.http.served_paths import status_server
from semgate.logs import log
from semgate.prompt.digest import open_secret
from semgate.router.app import RouterApp
from semgate.router.gateway import Gateway
from semgate.router.operations.admin import AdminApp
from semgate.router.operations.replicas import ReadSettings
from semgate.router.operations.settings_check import check_settings, read_admin_key
from semgate.settings import RouterSettings


def build_gateway(
    settings: RouterSettings, reload_settings: ReadSettings | None = None, config: Path | None = None
) -> Gateway:
    check_settings(settings)
    secret = open_secret(settings.digest_secret_file, settings.routing_output_dir, "--routing-output-dir")
    return Gateway(settings, secret, reload_settings=reload_settings, config=config)


async def serve(
    settings: RouterSettings, *, reload_settings: ReadSettings | None = None, config: Path | None = None
) -> None:
    gateway = build_gateway(settings, reload_settings, config)
    banner = StartupBanner(settings)
    banner.starting()
    server = HttpServer(
        RouterApp(gateway),
        host=settings.host,
        port=settings.port,
        tls_cert_file=settings.tls_cert_file,
        tls_key_file=settings.tls_key_file,
        shutdown_seconds=settings.shutdown_seconds,
        limits=Limits(max_connections=settings.max_connections),
    )
    admin: HttpServer | None = None
    status = status_server(settings, gateway.readiness, gateway.metrics.text)
    loop = asyncio.get_running_loop()
    try:
        admin = admin_server(gateway)
        server.bind()  # a port in use is reported before the warm-up; connections are accepted after it
        if admin is not None:
            admin.bind()
        status_port = None if status is None else await status.start()  # alive from the first moment
        await gateway.start()
        admin_port = None if admin is None else await admin.start()
        port = await server.start()
        loop.add_signal_handler(signal.SIGHUP, gateway.reloader.try_reload, "SIGHUP")
        log(
            logging.INFO,
            "router started",
            host=settings.host,
            port=port,
            admin_port=admin_port,
            status_port=status_port,
            policy=gateway.placer.policy,
            replicas=[replica.name for replica in gateway.roster.fleet],
        )
        banner.started(port, [replica.name for replica in gateway.roster.fleet])
        await server.serve_until_signal()
        log(logging.INFO, "router stopping", open_connections=server.open_connections)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        await server.stop()
        if admin is not None:
            await admin.stop()
        await gateway.stop()
        if status is not None:
            await status.stop()


def admin_server(gateway: Gateway) -> HttpServer | None:
    """None if ``admin_port`` is 0. The admin surface never shares the clients' port."""
    settings = gateway.settings
    if settings.admin_port == 0:
        return None
    return HttpServer(
        AdminApp(gateway, read_admin_key(settings.admin_api_key_file)),
        host=settings.admin_host,
        port=settings.admin_port,
        tls_cert_file=settings.admin_tls_cert_file,
        tls_key_file=settings.admin_tls_key_file,
        shutdown_seconds=1.0,
        flags=("--admin-host", "--admin-port"),
    )


class StartupBanner:
    """Two lines for a person at a terminal; silent if stderr is not one, since the JSON log lines say the same."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._is_terminal = sys.stderr.isatty()

    def starting(self) -> None:
        if self._is_terminal:
            write_err("semgate: starting (the first start compiles, which takes up to half a minute)\n")

    def started(self, port: int, replicas: Sequence[str]) -> None:
        if not self._is_terminal:
            return
        settings = self._settings
        scheme = "https" if settings.tls_cert_file is not None else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        to = ", ".join(replicas) or "the replicas that Kubernetes discovers"
        write_err(f"semgate: router on {scheme}://{host}:{port}, policy {settings.routing_policy}, to {to}\n")
