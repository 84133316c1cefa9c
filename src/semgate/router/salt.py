"""Puts a ``cache_salt`` into a request's body: the one place where a client's bytes change, off unless switched on.

The pair is added behind all others, since of two equal names JSON readers take the last; every other byte stays.
"""

from __future__ import annotations

import hmac
import json


def tenant_salt(secret: bytes, tenant: str, given: str | None) -> str:
    """256 bits. What a client asked for still separates its own requests, and never joins another tenant's."""
    parts = (b"semgate cache salt", _bytes(tenant), _bytes(given or ""))
    # Lengths go in front, so that no two pairs of names make the same message.
    return hmac.digest(secret, b"".join(len(each).to_bytes(8, "big") + each for each in parts), "sha256").hex()


def with_cache_salt(body: bytes, salt: str) -> bytes | None:
    """None where the body is no JSON object: then there is nothing to salt, and the replica will say what is wrong."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not body.rstrip().endswith(b"}"):  # UTF-16 and UTF-32 end otherwise
        return None
    comma = b"," if given else b""
    return body.rstrip()[:-1] + comma + b'"cache_salt":' + json.dumps(salt).encode() + b"}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
