"""The first look at a request: who sent it, what it asks for, and, if switched on, a ``cache_salt`` added to its body.

In: path, headers and body; out: the parsed request and the body to forward. The salt is the only change ever made to
a client's bytes. It is added after the other members, since JSON readers take the last of two equal names.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final, ParamSpec, TypeVar

from semgate.http.client_keys import Tenant
from semgate.http.faults import NOT_JSON, RequestRefused, field_not_allowed
from semgate.http.headers import Headers
from semgate.http.held_body import HeldBody
from semgate.http.request_body import Asked, parsed_size, read_request
from semgate.http.tenant import BY_CLIENT, TenantRule
from semgate.router.request.engine_fields import UNREADABLE, engine_field
from semgate.router.request.media_keys import names_media
from semgate.router.request.members import is_wide, members_of

P = ParamSpec("P")
R = TypeVar("R")
# For smaller bodies a hop to another thread costs more than the work: about 5 ms at 20 us per KB.
INLINE_BYTES: Final = 256 * 1024
# Where vLLM and SGLang both key their cache by the salt. Elsewhere (SGLang's /v1/messages, /generate) it is ignored.
SALTED_PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions"})
# These paths compute no KV, so there is nothing to isolate.
KV_FREE_PATHS: Final = ("/v1/models", "/v1/models/*", "/tokenize", "/detokenize")
MEDIA_NAMED: Final = field_not_allowed(
    "Leave out 'uuid' in messages: it names media in a cache that all tenants share."
)


class RequestInspector:
    def __init__(
        self, secret: bytes, *, trust_tenant_header: bool, inject_cache_salt: bool, allow_engine_fields: bool = False
    ) -> None:
        self._allow_engine_fields = allow_engine_fields
        self._secret = secret
        self._tenants = TenantRule(secret, trust_tenant_header=trust_tenant_header)
        self._inject_cache_salt = inject_cache_salt

    def tenant_name(self, client: Tenant | None, headers: Headers) -> str:
        """Of the authenticated client; without one the headers decide. Raises `RequestRefused`."""
        return self._tenants.tenant_of(headers) if client is None else BY_CLIENT + client.name

    async def inspect_request(self, path: str, headers: Headers, held: HeldBody, tenant: str) -> tuple[Asked, bytes]:
        """The parsed request and the body to send. Raises `RequestRefused`.

        Without room for the parsed form the prompt is not read, and the request is placed by load."""
        body = held.data
        is_readable = held.count_parsed(await run_off_loop(len(body), parsed_size, body))
        return await run_off_loop(len(body), self._inspect, path, headers, body, tenant, is_readable=is_readable)

    def _inspect(
        self, path: str, headers: Headers, body: bytes, tenant: str, *, is_readable: bool
    ) -> tuple[Asked, bytes]:
        """May run in another thread: reads the request only."""
        if is_wide(body):
            raise RequestRefused(NOT_JSON)
        if not self._allow_engine_fields and (found := engine_field(body)) is not None:
            message = f"The field '{found}' is not for clients."
            raise RequestRefused(NOT_JSON if found == UNREADABLE else field_not_allowed(message))
        if self._inject_cache_salt and names_media(body):
            raise RequestRefused(MEDIA_NAMED)
        asked = read_request(path, headers, body, tenant, is_readable=is_readable)
        if not self._inject_cache_salt or path not in SALTED_PATHS or not body:
            return asked, body
        salt = tenant_salt(self._secret, tenant, asked.cache_salt)
        salted = with_cache_salt(body, salt)
        if salted is None:
            raise RequestRefused(NOT_JSON)
        return replace(asked, cache_salt=salt), salted


async def run_off_loop(size_bytes: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Runs ``work`` inline for a small body and in a thread for a large one, so that a large body blocks no stream."""
    if size_bytes <= INLINE_BYTES:
        return work(*args, **options)
    return await asyncio.to_thread(work, *args, **options)


def isolates_tenants(path: str) -> bool:
    """A salt works on this path, or is not needed there."""
    return path in SALTED_PATHS or any(fnmatch.fnmatchcase(path, pattern) for pattern in KV_FREE_PATHS)


def tenant_salt(secret: bytes, tenant: str, given: str | None) -> str:
    """256 bits. A salt the client chose still separates its own requests and never matches another tenant's."""
    parts = (b"semgate cache salt", _bytes(tenant), _bytes(given or ""))
    # Each part is prefixed with its length, so that no two pairs of names make the same message.
    return hmac.digest(secret, b"".join(len(each).to_bytes(8, "big") + each for each in parts), "sha256").hex()


def with_cache_salt(body: bytes, salt: str) -> bytes | None:
    """None if the body is not a JSON object: it cannot carry a salt."""
    try:
        given = members_of(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    comma = b"," if given else b""
    return body.rstrip()[:-1] + comma + b'"cache_salt":' + json.dumps(salt).encode() + b"}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
