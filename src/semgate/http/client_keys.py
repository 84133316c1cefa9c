"""The clients that may use a gateway: a TOML file of tenants with digests of their keys and their limits.

In: the headers of a request; out: its tenant, admitted or refused. The file is read again when it changes, at most once
a second; a file that cannot be read changes nothing and is logged. Keys are compared by digest only. State: per tenant
two buckets and the requests in flight, which outlive a reload.
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
LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ROUNDING: Final = 1e-7  # who waits as long as told is admitted


class Bucket:
    """Refilled evenly, at most a minute's worth; may be overdrawn by one request whose cost is known only later."""

    __slots__ = ("_at_s", "_left", "per_minute")

    def __init__(self, per_minute: int, now_s: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at_s = now_s

    def has_any(self, now_s: float) -> bool:
        self._left = min(self._left + (now_s - self._at_s) * self.per_minute / 60.0, float(self.per_minute))
        self._at_s = now_s
        return self._left >= 1.0 - _ROUNDING

    def take(self, amount: float) -> None:
        self._left = min(self._left - amount, float(self.per_minute))

    def wait_s(self) -> int:
        """Until there is one again."""
        return max(1, -int((self._left - 1.0) * 60.0 // max(self.per_minute, 1)))


@dataclass(slots=True)
class Tenant:
    """``None``: no limit."""

    name: str
    requests: Bucket | None = None
    tokens: Bucket | None = None
    max_concurrent: int | None = None
    concurrent: int = 0
    concurrent_elsewhere: int = 0  # on other routers, as they last reported
    used_requests: float = 0.0  # since the last report to other routers
    used_tokens: float = 0.0

    def refusal(self, now_s: float) -> Fault | None:
        if self.max_concurrent is not None and self.concurrent + self.concurrent_elsewhere >= self.max_concurrent:
            return _too_many("requests at the same time", 1)
        if self.requests is not None and not self.requests.has_any(now_s):
            return _too_many("requests", self.requests.wait_s())
        if self.tokens is not None and not self.tokens.has_any(now_s):
            return _too_many("tokens", self.tokens.wait_s())
        return None

    def begin(self) -> None:
        self.concurrent += 1
        self.used_requests += 1.0
        if self.requests is not None:
            self.requests.take(1.0)

    def use_tokens(self, tokens: int) -> None:
        """May be negative, to correct an estimate by what the engine reported."""
        self.used_tokens += tokens
        if self.tokens is not None:
            self.tokens.take(float(tokens))

    def take_used(self) -> tuple[float, float]:
        """Requests and tokens since the last call, for the other routers."""
        used = self.used_requests, self.used_tokens
        self.used_requests = self.used_tokens = 0.0
        return used

    def give_back_used(self, requests: float, tokens: float) -> None:
        """They could not be reported."""
        self.used_requests += requests
        self.used_tokens += tokens

    def note_used_elsewhere(self, requests: float, tokens: float) -> None:
        for bucket, amount in ((self.requests, requests), (self.tokens, tokens)):
            if bucket is not None and amount:
                bucket.take(amount)

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
        now_s = self.clock_s()
        for name, tenant in made.items():
            requests, tokens, tenant.max_concurrent = found[name][1]
            tenant.requests = _limited(tenant.requests, requests, now_s)
            tenant.tokens = _limited(tenant.tokens, tokens, now_s)
        self._by_digest, self._tenants = by_digest, made


Limits = tuple[int | None, int | None, int | None]


def _tables(path: Path) -> dict[str, tuple[tuple[str, ...], Limits]]:
    """Digests and limits by tenant."""
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


def _tenant(path: Path, name: str, given: Any) -> tuple[tuple[str, ...], Limits]:
    where = f"--client-keys-file {path}: tenant '{name}'"
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: a name has 1 to 64 letters, digits, dots, dashes")
    if not isinstance(given, dict) or set(given) - {"keys", *LIMITS}:
        raise ConfigurationError(f"{where}: allowed are keys, {', '.join(LIMITS)}")
    keys = given.get("keys")
    if not isinstance(keys, list) or not keys or not all(isinstance(k, str) and _DIGEST.fullmatch(k) for k in keys):
        raise ConfigurationError(f"{where}: keys must be a list of 'sha256:' and 64 hexadecimal digits")
    for limit in LIMITS:
        if not (given.get(limit) is None or (type(given[limit]) is int and given[limit] > 0)):
            raise ConfigurationError(f"{where}: {limit} must be a positive integer")
    digests = tuple(key.removeprefix("sha256:") for key in keys)
    return digests, (given.get(LIMITS[0]), given.get(LIMITS[1]), given.get(LIMITS[2]))


def _limited(bucket: Bucket | None, per_minute: int | None, now_s: float) -> Bucket | None:
    """The same bucket while its limit is the same, so that a reload refills nothing."""
    if per_minute is None:
        return None
    return bucket if bucket is not None and bucket.per_minute == per_minute else Bucket(per_minute, now_s)


def _too_many(what: str, wait_s: int) -> Fault:
    return Fault(429, "rate_limit_error", "rate_limit_exceeded", f"Too many {what} for this API key.", wait_s)
