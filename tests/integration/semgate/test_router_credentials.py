"""Engines that ask for a key and a certificate: what the router shows them, what it checks, what rotates."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.certificates import Pair, authority, needs_openssl, signed
from tests.fakes.raw_client import Reply, ask
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S

from sembase import watched_files
from sembase.errors import ConfigurationError
from sembase.http.credentials import Credentials, KeptCredentials

BODY = {"model": "m", "stream": True, "prompt": "x"}


@dataclass(frozen=True)
class Made:
    """A stand-in's TLS that asks for certificates of ``ours``; a router's credentials for it."""

    server: ssl.SSLContext
    ours: Pair
    client: Pair
    stranger: Pair

    def settings(self, **changed: Any) -> dict[str, Any]:
        given = {
            "upstream_ca_file": self.ours.cert,
            "upstream_cert_file": self.client.cert,
            "upstream_key_file": self.client.key,
            "upstream_tls_name": "engine",
        }
        return given | changed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("certificates")
    ours, theirs = authority(folder, "ours"), authority(folder, "theirs")
    engine = signed(folder, "engine", ours)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ours.cert))
    server.load_cert_chain(engine.cert, engine.key)
    server.verify_mode = ssl.CERT_REQUIRED
    return Made(server, ours, signed(folder, "router", ours), signed(folder, "stranger", theirs))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def completed(rig: Rig, **headers: str) -> Reply:
    return await ask(rig.port, "/v1/completions", BODY, headers=headers)


@needs_openssl
def test_the_router_shows_its_certificate_and_key_in_place_of_the_clients(tmp_path: Path, made: Made) -> None:
    key = tmp_path / "engine.key"
    key.write_text("of-the-engines\n")

    async def work() -> None:
        given = made.settings(upstream_api_key_file=key, forward_authorization=True)
        async with router_rig(tmp_path, "a", tls=made.server, **given) as rig:
            reply = await completed(rig, authorization="Bearer of-the-client", **{"x-api-key": "of-the-client"})
            assert reply.status == 200
            assert reply.complete
            (seen,) = rig.replicas[0].seen
            assert [value for name, value in seen.headers if name == "authorization"] == ["Bearer of-the-engines"]
            assert "of-the-client" not in str(seen.headers)

    run(work())


@needs_openssl
@pytest.mark.parametrize("wrong", ["certificate", "no certificate", "name", "authority"])
def test_without_the_right_certificates_nothing_is_sent(tmp_path: Path, made: Made, wrong: str) -> None:
    changed: dict[str, dict[str, Any]] = {
        "certificate": {"upstream_cert_file": made.stranger.cert, "upstream_key_file": made.stranger.key},
        "no certificate": {"upstream_cert_file": None, "upstream_key_file": None},
        "name": {"upstream_tls_name": ""},
        "authority": {"upstream_ca_file": None},
    }

    async def work() -> None:
        async with router_rig(tmp_path, "a", tls=made.server, **made.settings(**changed[wrong])) as rig:
            assert (await completed(rig)).status == 502
            assert not rig.replicas[0].seen

    run(work())


@needs_openssl
def test_keys_and_certificates_change_without_a_restart(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "CHECK_SECONDS", 0.0)
    key, cert, cert_key = tmp_path / "engine.key", tmp_path / "cert.pem", tmp_path / "cert.key"
    key.write_text("old")
    shutil.copy(made.stranger.cert, cert)
    shutil.copy(made.stranger.key, cert_key)

    async def work() -> None:
        files = {"upstream_cert_file": cert, "upstream_key_file": cert_key, "upstream_api_key_file": key}
        async with router_rig(tmp_path, "a", tls=made.server, **made.settings(**files)) as rig:
            assert (await completed(rig)).status == 502
            for new, path in ((made.client.cert, cert), (made.client.key, cert_key)):
                shutil.copy(new, tmp_path / "new")
                os.replace(tmp_path / "new", path)
            (tmp_path / "new").write_text("new")
            os.replace(tmp_path / "new", key)
            assert (await completed(rig)).status == 200
            assert ("authorization", "Bearer new") in rig.replicas[0].seen[0].headers
            key.write_text("two words")
            assert (await completed(rig)).status == 200, "a file that is wrong changes nothing"
            assert ("authorization", "Bearer new") in rig.replicas[0].seen[1].headers

    run(work())


@pytest.mark.parametrize("text", ["", " \n", "two words", "line\nline", "é"])
def test_an_unusable_key_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    key = tmp_path / "key"
    key.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="one word of printable ASCII"):
        KeptCredentials(Credentials(api_key_file=key))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        KeptCredentials(Credentials(api_key_file=tmp_path / "absent"))


def test_a_private_key_needs_its_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs its certificate"):
        Credentials(key_file=tmp_path / "key")
