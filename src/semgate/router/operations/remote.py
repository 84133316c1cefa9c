"""Fetches one decision from the admin surface of a running router. Called by `semgate explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from sembase.errors import ConfigurationError
from sembase.http.client import HttpFault, describe_fault, fetch_once
from semgate.router.state.decisions import DecisionRecord, record_from_json

TIMEOUT_SECONDS: Final = 10.0


def fetch_decision(admin_url: str, request_id: str, key: str, ca_file: Path | None) -> DecisionRecord | None:
    """None if the router keeps no decision with this id."""
    parts = urlsplit(admin_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"invalid URL '{admin_url}' (expected --admin-url https://127.0.0.1:8021)")
    try:
        status, body = fetch_once(
            "GET",
            f"{parts.scheme}://{parts.netloc}/admin/decisions/{quote(request_id, safe='')}",
            headers=((b"authorization", f"Bearer {key}".encode("latin-1", "replace")),),
            timeout_s=TIMEOUT_SECONDS,
            ca_file=ca_file,
        )
    except HttpFault as fault:
        raise ConfigurationError(f"cannot reach {admin_url}: {describe_fault(fault)}") from None
    if status == 404:
        return None
    if status == 401:
        raise ConfigurationError(f"{admin_url} rejected the key; pass the router's own with --admin-api-key-file")
    if status != 200:
        raise ConfigurationError(f"{admin_url} answered with status {status}; is it the admin surface?")
    try:
        return record_from_json(json.loads(body))
    except ValueError:
        raise ConfigurationError(f"{admin_url} did not answer with JSON") from None
