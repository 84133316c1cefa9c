"""The clients that may use a gateway: a TOML file of tenants with digests of their keys, and how many
requests each may have in flight.

In: the headers of a request; out: its tenant, admitted or refused. The file is read again when it changes, at most once
a second; a file that cannot be read changes nothing and is logged. Keys are compared by digest only. State: the
requests in flight per tenant, which outlive a reload.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.watched_files import WatchedFiles
from semgate.http.faults import Fault
from semgate.http.headers import Headers
from semgate.http.tenant import api_key_of
from semgate.logs import log

UNAUTHORIZED: Final = Fault(401, "invalid_request_error", "invalid_api_key", "The API key is missing or unknown.")
TOO_MANY: Final = Fault(
    429, "rate_limit_error", "rate_limit_exceeded", "Too many requests at the same time for this API key.", 1
)
LIMIT: Final = "concurrent_requests"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Tenant:
    name: str
    max_concurrent: int | None = None  # None: no limit
    concurrent: int = 0
    concurrent_elsewhere: int = 0  # on other routers, as they last reported

    def refusal(self) -> Fault | None:
        is_full = self.max_concurrent is not None and self.concurrent + self.concurrent_elsewhere >= self.max_concurrent
        return TOO_MANY if is_full else None

    def begin(self) -> None:
        self.concurrent += 1

    def end(self) -> None:
        self.concurrent -= 1


@dataclass(slots=True)
class ClientKeys:
    """Raises ``ConfigurationError`` for a file that is wrong at the start."""

    path: Path
    clock_s: Callable[[], float] = time.monotonic
    _by_digest: dict[str, Tenant] = field(default_factory=dict)
    _tenants: dict[str, Tenant] = field(default_factory=dict)
    _file: WatchedFiles = field(init=False)

    def __post_init__(self) -> None:
        self._file = WatchedFiles((self.path,), self.clock_s)
        self._read()

    def tenant_of(self, headers: Headers) -> Tenant | None:
        """None for a missing or unknown key."""
        self._reload()
        key = api_key_of(headers)
        return None if key is None else self._by_digest.get(hashlib.sha256(key).hexdigest())

    def tenants(self) -> Mapping[str, Tenant]:
        return self._tenants

    def _reload(self) -> None:
        if not self._file.have_changed():
            return
        try:
            self._read()
        except ConfigurationError as error:
            log(logging.ERROR, "client keys not reloaded, the old ones stay", why=str(error))
        else:
            log(logging.INFO, "client keys reloaded", tenants=len(self._tenants), keys=len(self._by_digest))

    def _read(self) -> None:
        """Changes nothing unless the whole file is right."""
        by_digest: dict[str, Tenant] = {}
        made: dict[str, Tenant] = {}
        found = _tables(self.path)
        for name, (digests, _) in found.items():
            for digest in digests:
                if digest in by_digest:
                    raise ConfigurationError(f"{self.path}: tenants {by_digest[digest].name} and {name} share a key")
                by_digest[digest] = made.setdefault(name, self._tenants.get(name) or Tenant(name))
        for name, tenant in made.items():
            tenant.max_concurrent = found[name][1]
        self._by_digest, self._tenants = by_digest, made


def _tables(path: Path) -> dict[str, tuple[tuple[str, ...], int | None]]:
    """Digests and limit by tenant."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--client-keys-file {path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--client-keys-file {path}: is not TOML: {error}") from None
    tenants = document.get("tenants")
    if set(document) != {"tenants"} or not isinstance(tenants, dict) or not tenants:
        raise ConfigurationError(f"--client-keys-file {path}: expected tables [tenants.NAME] and nothing else")
    return {name: _tenant(path, name, given) for name, given in tenants.items()}


def _tenant(path: Path, name: str, given: Any) -> tuple[tuple[str, ...], int | None]:
    where = f"--client-keys-file {path}: tenant '{name}'"
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: a name has 1 to 64 letters, digits, dots, dashes")
    if not isinstance(given, dict) or set(given) - {"keys", LIMIT}:
        raise ConfigurationError(
            f"{where}: allowed are keys and {LIMIT}; for limits per minute use your API gateway's rate limits"
        )
    keys = given.get("keys")
    if not isinstance(keys, list) or not keys or not all(isinstance(k, str) and _DIGEST.fullmatch(k) for k in keys):
        raise ConfigurationError(f"{where}: keys must be a list of 'sha256:' and 64 hexadecimal digits")
    limit = given.get(LIMIT)
    if not (limit is None or (type(limit) is int and limit > 0)):
        raise ConfigurationError(f"{where}: {LIMIT} must be a positive integer")
    return tuple(key.removeprefix("sha256:") for key in keys), limit
