"""Keyed digests: equal texts match within a tenant, never across tenants, and cannot be guessed without the secret.

Tenant key = HMAC-SHA256(secret, length-prefixed tenant). The secret comes from a file, or is
created once in the output folder, readable only by its owner.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from sembase.errors import ConfigurationError
from sembase.trace.digest_tokens import digest_key

MIN_SECRET_BYTES: Final = 32
SECRET_NAME: Final = "digest-secret"
DIGEST_BYTES: Final = 16  # 32 hex digits: no collision expected among 2^60 texts
_CACHED_TENANTS: Final = 4096  # about 200 bytes each
_CACHED_NAMES: Final = 16_384  # about 400 bytes each
_MAX_CACHED_BYTES: Final = 256  # of one name: clients choose them
Purpose = Literal["content", "session", "tenant", "model"]


class Digests:
    """Costs one HMAC for each digest: about 2 us and 2 us per KB of text."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ConfigurationError(f"the digest secret has {len(secret)} bytes; minimum {MIN_SECRET_BYTES}")
        self._secret = secret
        self._key_of = lru_cache(maxsize=_CACHED_TENANTS)(self._derive)
        # Names of tenants, sessions and models repeat; contents are many and long, and are not cached.
        self._name_of = lru_cache(maxsize=_CACHED_NAMES)(self._computed)

    def of(self, tenant: str, purpose: Purpose, value: bytes) -> str:
        if purpose == "content" or len(value) > _MAX_CACHED_BYTES or len(tenant) > _MAX_CACHED_BYTES:
            return self._computed(tenant, purpose, value)
        return self._name_of(tenant, purpose, value)

    def key_of_contents(self, tenant: str) -> bytes:
        """The key of the tenant's content digests."""
        return digest_key(self._key(tenant))

    def _computed(self, tenant: str, purpose: Purpose, value: bytes) -> str:
        message = purpose.encode() + b"\x00" + value
        return hmac.digest(self._key(tenant), message, "sha256")[:DIGEST_BYTES].hex()

    def _key(self, tenant: str) -> bytes:
        return self._derive(tenant) if len(tenant) > _MAX_CACHED_BYTES else self._key_of(tenant)

    def _derive(self, tenant: str) -> bytes:
        name = tenant.encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, b"semgate tenant key" + len(name).to_bytes(8, "big") + name, "sha256")


def open_secret(given: Path | None, folder: Path, folder_flag: str = "--routing-output-dir") -> bytes:
    """The secret in ``given``; otherwise the one in ``folder``, created at the first start and kept."""
    if given is not None:
        return _read(given)
    path = folder / SECRET_NAME
    scratch = folder / f".{SECRET_NAME}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_private(scratch, secrets.token_hex(MIN_SECRET_BYTES).encode() + b"\n")
        try:
            os.link(scratch, path)  # atomic: of two processes that start together one wins
        except FileExistsError:
            pass
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(
            f"{path}: cannot be written: {reason}; set {folder_flag} to a writable folder, or --digest-secret-file"
        ) from None
    return _read(path)


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _read(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    # The group may read: Kubernetes mounts secrets with mode 0440 for the group of the pod.
    if mode & (stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO):
        raise ConfigurationError(f"{path}: the digest secret is accessible to other users; run: chmod 600 {path}")
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigurationError(f"{path}: the digest secret has {len(secret)} bytes; minimum {MIN_SECRET_BYTES}")
    return secret
