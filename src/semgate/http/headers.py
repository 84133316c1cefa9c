"""Which headers may pass between client and upstream, and how one is looked up.

In: headers as ASGI gives them (lower-case names); out: the same without what belongs to one connection or one party.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sembase.http.reply import Headers

__all__ = ["ADMIN_KEY", "CREDENTIALS", "HOP_BY_HOP", "Headers", "find", "find_text", "for_client", "for_upstream"]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
CREDENTIALS: Final = frozenset({b"authorization", b"cookie", b"x-api-key", b"api-key"})
# The client writes host and length for the upstream connection; our server has answered 100-continue.
_OF_THE_MESSAGE: Final = frozenset({b"host", b"content-length", b"expect", b"accept-encoding"})
# The admin key is for this process: it is never forwarded, whatever the settings.
ADMIN_KEY: Final = b"x-semgate-admin-key"
_NEVER_UP: Final = HOP_BY_HOP | _OF_THE_MESSAGE | {ADMIN_KEY}
_NEVER_UP_NOR_CREDENTIALS: Final = _NEVER_UP | CREDENTIALS
_NAMES_NOTHING: Final = (b"close", b"keep-alive", b"Keep-Alive", b"Close")
# A compressed stream cannot be timed by its tokens.
_IDENTITY: Final = (b"accept-encoding", b"identity")


# What only the platform may say to an engine or to a gateway behind this one.
OF_THE_PLATFORM: Final = frozenset(
    {
        b"forwarded",
        b"x-data-parallel-rank",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
        b"x-gateway-destination-endpoint",
        b"x-gateway-destination-endpoint-served",
        b"x-gateway-destination-endpoint-subset",
        b"x-original-forwarded-for",
        b"x-prefiller-host-port",
        b"x-real-ip",
    }
)


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of ``name`` (lower case)."""
    for key, value in headers:
        if key == name:
            return value
    return None


def find_text(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """As text; an empty or blank value counts as absent."""
    value = find(headers, name)
    return value.decode("latin-1").strip() or None if value is not None else None


def for_upstream(
    headers: Iterable[tuple[bytes, bytes]], *, forward_authorization: bool, drop: frozenset[bytes] = frozenset()
) -> Headers:
    """What the upstream may see: no connection headers, no admin key, credentials only if the operator allows it."""
    banned = _NEVER_UP if forward_authorization else _NEVER_UP_NOR_CREDENTIALS
    kept = [pair for pair in headers if pair[0] not in banned]
    named = _named_by_connection(headers) | drop
    if named:
        kept = [pair for pair in kept if pair[0] not in named]
    kept.append(_IDENTITY)
    return tuple(kept)


def for_client(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What the client may see of an upstream's reply; a list, because the caller adds headers."""
    kept = [pair for pair in headers if pair[0] not in HOP_BY_HOP]
    named = _named_by_connection(headers)
    return [pair for pair in kept if pair[0] not in named] if named else kept


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Names the ``connection`` headers declare to be hop-by-hop; the usual close and keep-alive name none."""
    values = [value for name, value in headers if name == b"connection" and value not in _NAMES_NOTHING]
    if not values:
        return frozenset()
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))
