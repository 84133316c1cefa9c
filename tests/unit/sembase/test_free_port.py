"""A port that another server holds is refused in one sentence."""

from __future__ import annotations

import socket

import pytest

from sembase.errors import ConfigurationError
from sembase.free_port import require_free_port


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_a_port_in_use_is_refused(host: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port}: already in use; choose another with --port"):
            require_free_port(host, port)
    require_free_port(host, port)
    require_free_port(host, port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1, port 0: cannot assign"):
        require_free_port("192.0.2.1", 0)
