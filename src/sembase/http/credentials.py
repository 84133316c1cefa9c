"""What a client shows a server and how it checks it: an API key, certificates. Files are read again when they change.

A file that cannot be read later changes nothing and is logged; at the start it is a ``ConfigurationError``.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from sembase.errors import ConfigurationError
from sembase.http.reply import Headers
from sembase.watched_files import WatchedFiles

LOGGER: Final = logging.getLogger("sembase")
_KEY_HEADERS: Final = frozenset({b"authorization", b"x-api-key", b"api-key"})
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """``ca_file`` replaces the system's certificate authorities. ``cert_file`` and ``key_file`` are the client's own,
    for servers that ask for them. ``server_name`` is the name a certificate must have, if it is not the host's."""

    api_key_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.key_file is not None and self.cert_file is None:
            raise ConfigurationError(f"{self.key_file}: a private key needs its certificate")


class KeptCredentials:
    """The credentials of one HTTP client. Files that are named are read at once."""

    def __init__(self, given: Credentials) -> None:
        self.server_name = given.server_name
        self._given = given
        self._tls: _Reread[ssl.SSLContext] | None = None
        self._key: _Reread[bytes] | None = None
        if given.api_key_file is not None:
            path = given.api_key_file
            self._key = _Reread((path,), lambda: b"Bearer " + read_api_key(path))
        if given.ca_file is not None or given.cert_file is not None:
            self.tls()

    def tls(self) -> ssl.SSLContext:
        """For a new connection."""
        if self._tls is None:
            named = (self._given.ca_file, self._given.cert_file, self._given.key_file)
            self._tls = _Reread([path for path in named if path is not None], lambda: tls_context(self._given))
        return self._tls.value()

    def headers(self, headers: Headers) -> Headers:
        """The headers of a request, with the key in place of the caller's."""
        if self._key is None:
            return headers
        own = (b"authorization", self._key.value())
        return (*(pair for pair in headers if pair[0] not in _KEY_HEADERS), own)


class _Reread(Generic[T]):
    """A value made from files."""

    def __init__(self, paths: tuple[Path, ...] | list[Path], read: Callable[[], T]) -> None:
        self._watch = WatchedFiles(paths)
        self._read = read
        self._value = read()

    def value(self) -> T:
        if self._watch.have_changed():
            try:
                self._value = self._read()
            except ConfigurationError as error:
                LOGGER.error("credentials not read again, the old ones stay: %s", error)
        return self._value


def tls_context(given: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.ca_file)
    except OSError as error:
        raise ConfigurationError(f"{given.ca_file}: cannot be read as certificates: {error}") from None
    if given.cert_file is not None:
        try:
            context.load_cert_chain(given.cert_file, given.key_file)
        except OSError as error:
            raise ConfigurationError(f"{given.cert_file}: cannot be read as certificate and key: {error}") from None
    return context


def read_api_key(path: Path) -> bytes:
    """One line of printable ASCII: anything else would not survive as a header."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{path}: the API key cannot be read: {reason}") from None
    if not key or not key.isascii() or not key.decode("ascii").isprintable() or b" " in key:
        raise ConfigurationError(f"{path}: the API key must be one word of printable ASCII")
    return key
