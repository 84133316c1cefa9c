"""Clients by key: who is admitted, what limits mean, and that a changed file counts without a restart."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest
from tests.clock import Clock

from sembase.errors import ConfigurationError
from semgate.http.client_keys import ClientKeys


def digest(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def table(name: str, *keys: str, more: str = "") -> str:
    return f"[tenants.{name}]\nkeys = {[digest(key) for key in keys]}\n{more}\n"


def bearer(key: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"authorization", b"Bearer " + key.encode()),)


def write(path: Path, text: str, age: int) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (age, age))


def name_of(keys: ClientKeys, key: str) -> str | None:
    tenant = keys.tenant_of(bearer(key))
    return None if tenant is None else tenant.name


def test_keys_name_tenants_and_change_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock = tmp_path / "keys.toml", Clock(100.0)
    write(path, table("acme", "old", "new") + table("other", "o"), 1)
    keys = ClientKeys(path, clock)
    assert [name_of(keys, key) for key in ("old", "new", "o", "unknown", "")] == ["acme", "acme", "other", None, None]
    assert keys.tenant_of(()) is None
    write(path, table("acme", "new"), 2)
    assert name_of(keys, "old") == "acme", "the file is looked at once a second"
    clock.now += 1.0
    assert [name_of(keys, key) for key in ("old", "new", "o")] == [None, "acme", None]
    write(path, "[tenants.acme]\nkeys = ['plain']", 3)
    clock.now += 1.0
    with caplog.at_level(logging.ERROR, "semgate"):
        assert name_of(keys, "new") == "acme", "a wrong file changes nothing"
    assert [record.getMessage() for record in caplog.records] == ["client keys not reloaded, the old ones stay"]
    path.unlink()
    clock.now += 1.0
    assert name_of(keys, "new") == "acme"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected tables"),
        ("x = 1", "expected tables"),
        ("not toml", "is not TOML"),
        ("[tenants.a]\nkeys = []", "keys must be"),
        ("[tenants.a]\nkeys = ['sha256:00']", "keys must be"),
        (table("a", "k", more="concurrent_requests = 0"), "positive integer"),
        (table("a", "k", more="concurrent_requests = true"), "positive integer"),
        (table("a", "k", more="concurrent_request = 1"), "allowed are keys and concurrent_requests"),
        (table("a", "k", more="requests_per_minute = 1"), "use your API gateway's rate limits"),
        (table("a", "k", more="tokens_per_minute = 1"), "use your API gateway's rate limits"),
        (table("a", "k") + table("b", "k"), "share a key"),
        (table('"a b"', "k"), "a name has"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=why):
        ClientKeys(path)


def test_a_file_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--client-keys-file"):
        ClientKeys(tmp_path / "absent")


def test_the_limit_of_a_tenant_binds_it_alone_and_survives_a_reload(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.toml", Clock(100.0)
    limit = "concurrent_requests = 2"
    write(path, table("a", "k", more=limit) + table("b", "o"), 1)
    keys = ClientKeys(path, clock)
    tenant, other = keys.tenant_of(bearer("k")), keys.tenant_of(bearer("o"))
    assert tenant is not None
    assert other is not None
    for _ in range(2):
        assert tenant.refusal() is None
        tenant.begin()
    refused = tenant.refusal()
    assert refused is not None
    assert (refused.status, refused.retry_after_s, "same time" in refused.message) == (429, 1, True)
    assert other.refusal() is None
    write(path, table("a", "k", "k2", more=limit) + table("b", "o"), 2)
    clock.now += 1.0
    again = keys.tenant_of(bearer("k2"))
    assert again is tenant, "a reload does not forget the requests in flight"
    assert tenant.refusal() is not None
    tenant.end()
    assert tenant.refusal() is None
