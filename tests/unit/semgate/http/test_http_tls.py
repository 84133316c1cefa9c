"""The server over TLS, with a certificate made for the test."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.scripted_upstream import PlainClient
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from sembase.http.server import HttpServer
from semgate.http.faults import Send, send_json
from semgate.http.request_body import Receive


async def hello(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await send_json(send, 200, scope["scheme"].encode())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_served_over_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)

    async def act() -> None:
        server = HttpServer(hello, host="127.0.0.1", port=0, tls_cert_file=cert, tls_key_file=key)
        port = await server.start()
        context = ssl.create_default_context(cafile=str(cert))
        client = PlainClient(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
        client.send("GET", "/")
        assert (await client.answer()).body == b"https"
        await client.close()
        await server.stop()
        while server.open_connections:
            await asyncio.sleep(0)

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await act()

    asyncio.run(bounded())


def test_a_certificate_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    server = HttpServer(hello, host="127.0.0.1", port=0, tls_cert_file=absent, tls_key_file=absent)
    with pytest.raises(ConfigurationError, match="certificate or key"):
        asyncio.run(server.start())
