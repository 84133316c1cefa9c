"""Whether a server can listen, asked before its start takes a minute."""

from __future__ import annotations

import errno
import os
import socket

from sembase.errors import ConfigurationError


def require_free_port(host: str | None, port: int) -> None:
    """Listens on the port for a moment. Without ``host``, on all addresses. Another server may still come first."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"--host {host}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()
        except OSError as error:
            what = "already in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0).lower()
            raise ConfigurationError(
                f"cannot listen on {host or 'any address'}, port {port}: {what}; choose another with --port"
            ) from None
