"""Puts a ``cache_salt`` into a request's body: the one place where a client's bytes change, off unless switched on.

The pair is added behind all others, since of two equal names JSON readers take the last; every other byte stays.
"""

from __future__ import annotations

import fnmatch
import hmac
import json
from typing import Any, Final

import msgspec

# Where vLLM and SGLang both key their cache by the salt. Elsewhere (SGLang's /v1/messages, /generate) it is ignored.
SALTED_PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions"})
# Nothing is computed here, so there is nothing to keep apart.
KV_FREE_PATHS: Final = ("/v1/models", "/v1/models/*", "/tokenize", "/detokenize")
STRICT_BYTES: Final = 1 << 20
_PAIRS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def keeps_apart(path: str) -> bool:
    """A salt works here, or is not needed."""
    return path in SALTED_PATHS or any(fnmatch.fnmatchcase(path, pattern) for pattern in KV_FREE_PATHS)


def tenant_salt(secret: bytes, tenant: str, given: str | None) -> str:
    """256 bits. What a client asked for still separates its own requests, and never joins another tenant's."""
    parts = (b"semgate cache salt", _bytes(tenant), _bytes(given or ""))
    # Lengths go in front, so that no two pairs of names make the same message.
    return hmac.digest(secret, b"".join(len(each).to_bytes(8, "big") + each for each in parts), "sha256").hex()


def with_cache_salt(body: bytes, salt: str) -> bytes | None:
    """None where the body is no JSON object: then there is nothing to salt, and the replica will say what is wrong."""
    try:
        given = _look(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not body.rstrip().endswith(b"}"):  # UTF-16 and UTF-32 end otherwise
        return None
    comma = b"," if given else b""
    return body.rstrip()[:-1] + comma + b'"cache_salt":' + json.dumps(salt).encode() + b"}"


def _look(body: bytes) -> Any:
    """A large body is only walked over (1 ms per MB), so it must be plain JSON: no NaN, no UTF-16."""
    return json.loads(body) if len(body) <= STRICT_BYTES else _PAIRS.decode(body)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
