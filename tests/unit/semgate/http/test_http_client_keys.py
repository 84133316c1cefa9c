"""Clients by key: who is admitted, what limits mean, and that a changed file counts without a restart."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.clock import Clock

from sembase.errors import ConfigurationError
from semgate.http.client_keys import Bucket, ClientKeys


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
        (table("a", "k", more="requests_per_minute = 0"), "positive integer"),
        (table("a", "k", more="requests_per_minute = true"), "positive integer"),
        (table("a", "k", more="request_per_minute = 1"), "allowed are keys"),
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


def test_limits_of_a_tenant_bind_it_alone_and_survive_a_reload(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.toml", Clock(100.0)
    limits = "requests_per_minute = 60\ntokens_per_minute = 600\nconcurrent_requests = 2"
    write(path, table("a", "k", more=limits) + table("b", "o"), 1)
    keys = ClientKeys(path, clock)
    tenant, other = keys.tenant_of(bearer("k")), keys.tenant_of(bearer("o"))
    assert tenant is not None
    assert other is not None
    for _ in range(2):
        assert tenant.refusal(clock.now) is None
        tenant.begin()
    refused = tenant.refusal(clock.now)
    assert refused is not None
    assert (refused.status, refused.retry_after_s, "same time" in refused.message) == (429, 1, True)
    assert other.refusal(clock.now) is None
    tenant.end()
    tenant.use_tokens(5_000)
    write(path, table("a", "k", "k2", more=limits) + table("b", "o"), 2)
    clock.now += 1.0
    again = keys.tenant_of(bearer("k2"))
    assert again is tenant, "a reload does not lift a limit"
    refused = tenant.refusal(clock.now)
    assert refused is not None
    assert "tokens" in refused.message
    clock.now += float(refused.retry_after_s or 0)
    assert tenant.refusal(clock.now) is None
    tenant.use_tokens(-10_000)  # the engine reported less than was estimated: at most a full bucket
    tenant.use_tokens(600)
    assert tenant.refusal(clock.now) is not None


@given(st.integers(1, 200), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5)), min_size=1, max_size=60))
@example(1, [(4.9761188531891545, 1)])
def test_a_bucket_never_admits_more_than_its_rate_and_one_minute(
    per_minute: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now_s, taken = Bucket(per_minute, 0.0), 0.0, 0
    for wait_s, wanted in steps:
        now_s += wait_s
        for _ in range(wanted):
            if bucket.has_any(now_s):
                bucket.take(1.0)
                taken += 1
        assert taken <= per_minute + now_s * per_minute / 60.0 + 1e-6
    if not bucket.has_any(now_s):
        assert bucket.has_any(now_s + bucket.wait_s()), "who comes again when told is admitted"
