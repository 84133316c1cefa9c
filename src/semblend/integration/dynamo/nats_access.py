"""How a NATS server is reached when it asks for credentials or TLS: files in, options of the client out."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sembase.errors import ConfigurationError
from sembase.http.credentials import Credentials, tls_context


@dataclass(frozen=True, slots=True)
class NatsAccess:
    """``credentials_file`` is a NATS ``.creds`` file. ``tls`` None leaves TLS to the URL's scheme (``tls://``)."""

    credentials_file: Path | None = None
    tls: Credentials | None = None

    def options(self) -> dict[str, Any]:
        """Reads the files; raises ``ConfigurationError`` for one that cannot be used."""
        given: dict[str, Any] = {}
        if self.credentials_file is not None:
            if find_spec("nkeys") is None:
                raise ConfigurationError("NATS credentials need the package nkeys: pip install nkeys")
            if not self.credentials_file.is_file():
                raise ConfigurationError(f"{self.credentials_file}: not a NATS .creds file")
            given["user_credentials"] = str(self.credentials_file)
        if self.tls is not None:
            given["tls"] = tls_context(self.tls)
            if self.tls.server_name is not None:
                given["tls_hostname"] = self.tls.server_name
        return given


def nats_access(
    credentials_file: Path | None, ca_file: Path | None, cert_file: Path | None, key_file: Path | None
) -> NatsAccess:
    """TLS if a file of it is named."""
    if ca_file is None and cert_file is None and key_file is None:
        return NatsAccess(credentials_file)
    return NatsAccess(credentials_file, Credentials(ca_file=ca_file, cert_file=cert_file, key_file=key_file))
