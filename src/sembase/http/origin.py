"""The address of one server and how to connect to it: an origin and credentials in, an open `HttpConnection` out."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from sembase.errors import ConfigurationError
from sembase.http.connection import ConnectionOwner, HttpConnection
from sembase.http.credentials import KeptCredentials


class Origin:
    def __init__(self, url: str, credentials: KeptCredentials) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"invalid server URL '{url}' (expected http://host:port)")
        self.host_header = parts.netloc.rpartition("@")[2].encode("ascii", "replace")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._credentials = credentials if parts.scheme == "https" else None
        if self._credentials is not None:
            self._credentials.tls()  # certificates that cannot be read are reported here

    async def connect(self, owner: ConnectionOwner) -> HttpConnection:
        loop, tls = asyncio.get_running_loop(), self._credentials
        _, connection = await loop.create_connection(
            lambda: HttpConnection(owner, loop),
            self._host,
            self._port,
            ssl=None if tls is None else tls.tls(),
            server_hostname=None if tls is None else tls.server_name or self._host,
        )
        return connection
