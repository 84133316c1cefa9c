"""Keyed digests and their secret."""

from __future__ import annotations

import hashlib
import hmac
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semgate.prompt.digest import SECRET_NAME, Digests, open_secret

SECRET = b"k" * 32


@given(st.text(), st.text(), st.binary())
def test_equal_within_a_tenant_different_between_tenants(one: str, other: str, value: bytes) -> None:
    digests = Digests(SECRET)
    assert digests.of(one, "content", value) == Digests(SECRET).of(one, "content", value)
    assert (digests.of(one, "content", value) == digests.of(other, "content", value)) == (one == other)


def test_the_key_is_hmac_of_the_length_prefixed_tenant() -> None:
    key = hmac.new(SECRET, b"semgate tenant key" + (5).to_bytes(8, "big") + b"alice", hashlib.sha256).digest()
    expected = hmac.new(key, b"content\x00text", hashlib.sha256).digest()[:16].hex()
    assert Digests(SECRET).of("alice", "content", b"text") == expected


def test_purposes_and_secrets_do_not_mix() -> None:
    digests = Digests(SECRET)
    assert digests.of("t", "content", b"a") != digests.of("t", "session", b"a")
    assert digests.of("t", "content", b"a") != Digests(b"j" * 32).of("t", "content", b"a")


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="minimum 32"):
        Digests(b"short")


def test_the_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    first = open_secret(None, tmp_path / "new")
    assert open_secret(None, tmp_path / "new") == first
    made = tmp_path / "new" / SECRET_NAME
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert [path.name for path in made.parent.iterdir()] == [SECRET_NAME]
    assert open_secret(None, tmp_path / "other") != first


def test_a_given_secret_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    assert open_secret(path, tmp_path) == SECRET
    path.chmod(0o440)  # as Kubernetes mounts it
    assert open_secret(path, tmp_path) == SECRET
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        open_secret(path, tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="minimum 32"):
        open_secret(path, tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_secret(tmp_path / "absent", tmp_path)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        open_secret(None, tmp_path / "file" / "folder")


def test_long_names_are_not_kept() -> None:
    digests = Digests(b"x" * 32)
    long = digests.of("tenant", "session", b"s" * 10_000)
    assert long == digests.of("tenant", "session", b"s" * 10_000)
    digests.of("t" * 10_000, "tenant", b"")
    assert digests._name_of.cache_info().currsize == 0
    assert digests._key_of.cache_info().currsize == 1
    digests.of("tenant", "session", b"short")
    assert digests._name_of.cache_info().currsize == 1
