"""Reverse proxies in front of a gateway, each as operators configure it; started and ended here, on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from scripts.engines.fronts import binary_of, environment_of
from scripts.engines.ports import free_port
from tests.attacks.processes import listening

START_SECONDS: Final = 300.0


class FrontAbsentError(Exception):
    """The front is not installed; the message says how to get it."""


def _nginx(listen: int, upstream: int, folder: Path, buffering: str) -> list[str]:
    """With the map for WebSockets that most guides show. The front sets the tenant."""
    (folder / "nginx.conf").write_text(
        f"""
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; client_max_body_size 8m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
  upstream gate {{ server 127.0.0.1:{upstream}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{listen};
    location / {{
      proxy_pass http://gate; proxy_http_version 1.1; proxy_request_buffering {buffering};
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
      proxy_set_header Host $host; proxy_set_header X-Tenant-ID mallory;
    }}
  }}
}}
"""
    )
    return ["-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]


def _haproxy(listen: int, upstream: int, folder: Path) -> list[str]:
    (folder / "haproxy.cfg").write_text(
        f"""
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend clients
  bind 127.0.0.1:{listen}
  http-request set-header X-Tenant-ID mallory
  default_backend gate
backend gate
  server one 127.0.0.1:{upstream}
"""
    )
    return ["-db", "-f", str(folder / "haproxy.cfg")]


def _envoy(listen: int, upstream: int, folder: Path) -> list[str]:
    def address(port: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    route = {"match": {"prefix": "/"}, "route": {"cluster": "gate", "timeout": "30s"}}
    set_tenant = {"header": {"key": "x-tenant-id", "value": "mallory"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    hosts = [{"name": "all", "domains": ["*"], "routes": [route], "request_headers_to_add": [set_tenant]}]
    types = "type.googleapis.com/envoy.extensions.filters"
    router = f"{types}.http.router.v3.Router"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gate",
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "route_config": {"name": "gate", "virtual_hosts": hosts},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": router}}],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]
    cluster = {"name": "gate", "type": "STATIC", "load_assignment": {"cluster_name": "gate", "endpoints": endpoints}}
    listener = {"name": "clients", "address": address(listen), "filter_chains": [{"filters": filters}]}
    (folder / "envoy.json").write_text(
        json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})
    )
    named = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"]
    return ["-c", str(folder / "envoy.json"), *named]


Configure = Callable[[int, int, Path], list[str]]
FRONTS: Final[Mapping[str, tuple[str, Configure] | None]] = {
    "direct": None,
    "nginx, buffering": ("nginx", lambda listen, up, folder: _nginx(listen, up, folder, "on")),
    "nginx, no buffering": ("nginx", lambda listen, up, folder: _nginx(listen, up, folder, "off")),
    "HAProxy": ("haproxy", _haproxy),
    "Envoy": ("envoy", _envoy),
}


@asynccontextmanager
async def in_front_of(name: str, upstream: int, folder: Path) -> AsyncIterator[int]:
    """The port where clients connect. Raises `FrontAbsentError` if the front is not installed."""
    front = FRONTS[name]
    if front is None:
        yield upstream
        return
    program, configure = front
    binary = binary_of(program)
    if binary is None:
        raise FrontAbsentError(f"{program} is not installed; run python -m scripts.engines.fronts")
    folder.mkdir(parents=True, exist_ok=True)
    listen = free_port()
    async with running_front(program, (str(binary), *configure(listen, upstream, folder)), listen, folder):
        yield listen


@asynccontextmanager
async def running_front(program: str, command: Sequence[str], listen: int, folder: Path) -> AsyncIterator[None]:
    """The front's process, from when it listens until it is ended on leaving."""
    async with listening(command, folder, (listen,), environment_of(program), START_SECONDS):
        yield
