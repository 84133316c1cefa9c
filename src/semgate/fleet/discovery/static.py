"""Configured replicas -> endpoints: ``URL[;name=N][;events=tcp://..][;replay=tcp://..][;donors=tcp://..]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from sembase.errors import ConfigurationError
from semgate.fleet.endpoint import Endpoint

_PARTS: Final = ("name", "events", "replay", "donors")


def parse_replicas(texts: Iterable[str]) -> tuple[Endpoint, ...]:
    """Names default to ``host:port``; duplicate names are rejected."""
    endpoints = tuple(parse_replica(text) for text in texts)
    names = [each.name for each in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two replicas are named '{name}'; set unique names with ;name=")
    return endpoints


def parse_replica(text: str) -> Endpoint:
    url, *rest = (part.strip() for part in text.split(";"))
    origin = _origin(url)
    given: dict[str, str] = {}
    for part in rest:
        key, equals, value = part.partition("=")
        if key not in _PARTS or not equals or not value:
            raise ConfigurationError(f"replica '{text}': expected {', '.join(_PARTS)} with a value, not '{part}'")
        if key in given:
            raise ConfigurationError(f"replica '{text}': '{key}' is given twice")
        given[key] = value if key == "name" else _address(value, text)
    name = given.get("name", urlsplit(origin).netloc)
    return Endpoint(name, origin, events=given.get("events"), replay=given.get("replay"), donors=given.get("donors"))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"replica '{url}': the port must be a number up to 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"replica '{url}' is not a valid URL (expected http://host:port)")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ConfigurationError(f"replica '{url}': only scheme, host and port are allowed")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")


def _address(value: str, text: str) -> str:
    parts = urlsplit(value)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "tcp" or not parts.hostname or port is None:
        raise ConfigurationError(f"replica '{text}': '{value}' is not a valid address (expected tcp://host:port)")
    return value
