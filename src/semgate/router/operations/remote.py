"""Asks the admin surface of a running router for one decision. Called by `semgate explain`."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from sembase.errors import ConfigurationError
from semgate.router.state.decisions import DecisionRecord, record_from_json

TIMEOUT_SECONDS: Final = 10.0


def fetch_decision(admin_url: str, request_id: str, key: str, ca_file: Path | None) -> DecisionRecord | None:
    """None where the router keeps no decision of this id."""
    parts = urlsplit(admin_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"'{admin_url}' is no URL; --admin-url looks like https://127.0.0.1:8021")
    connection = _connection(parts.scheme, parts.hostname, parts.port, ca_file)
    try:
        connection.request(
            "GET", f"/admin/decisions/{quote(request_id, safe='')}", headers={"Authorization": f"Bearer {key}"}
        )
        reply = connection.getresponse()
        body = reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise ConfigurationError(f"{admin_url} cannot be asked: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if reply.status == 404:
        return None
    if reply.status == 401:
        raise ConfigurationError(f"{admin_url} does not know this key; give --admin-api-key-file the router's own")
    if reply.status != 200:
        raise ConfigurationError(f"{admin_url} answered with status {reply.status}; is it the admin surface?")
    try:
        return record_from_json(json.loads(body))
    except ValueError:
        raise ConfigurationError(f"{admin_url} answered with something that is no JSON") from None


def _connection(scheme: str, host: str, port: int | None, ca_file: Path | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        trusted = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigurationError(f"{ca_file}: cannot be read as certificates: {error}") from None
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=trusted)
