"""The admin surface, on its own port and behind a key, with the status pages that the clients' port has too.

Replicas are listed, set, drained and reloaded; decisions are read.
Every answer is JSON. The key comes as ``Authorization: Bearer KEY`` or ``X-Semgate-Admin-Key: KEY`` and is compared in
constant time; nothing of a request is logged or forwarded.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote

from sembase.errors import ConfigurationError, SemBlendError
from semgate.http.faults import NO_METHOD, NOT_FOUND, Fault, RequestRefused, Send, send_fault, send_json
from semgate.http.headers import ADMIN_KEY, Headers, find
from semgate.http.request_body import ClientGone, Receive, read_body
from semgate.http.served_paths import send_own_page
from semgate.logs import log
from semgate.placement.placer import Placer
from semgate.router.operations.replicas import Reloader
from semgate.router.state.decisions import DecisionRing
from semgate.router.state.metrics import RouterMetrics
from semgate.router.state.roster import Roster

UNAUTHORIZED: Final = Fault(401, "invalid_request_error", "unauthorized", "The admin key is missing or wrong.")
MAX_BODY_BYTES: Final = 1 << 20
MAX_LISTED: Final = 1_000
_REFUSALS: Final = 5
_PATH_CHARACTERS: Final = 200


class Administered(Protocol):
    """What the pages of this module read of a running router; ``semgate.router.gateway.Gateway`` is one."""

    placer: Placer
    roster: Roster
    reloader: Reloader
    ring: DecisionRing
    metrics: RouterMetrics

    def readiness(self) -> dict[str, str]:
        """``status`` is ``ready`` if the router can place requests, otherwise there is a ``reason``."""


class AdminApp:
    def __init__(self, router: Administered, key: str) -> None:
        self._router = router
        self._key_digest = hashlib.sha256(key.encode()).digest()
        self._second_s = 0.0
        self._refusals = 0
        self._left_out = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: Headers = tuple(scope["headers"])
        if scope["path"] != "/healthz" and not self._has_key(headers):
            self._audit(scope, 401, logging.WARNING)
            await send_fault(send, UNAUTHORIZED, ((b"www-authenticate", b"Bearer"),))
            return
        if await send_own_page(send, scope["path"], self._router.readiness, self._router.metrics.text):
            return
        try:
            body = await read_body(receive, headers, MAX_BODY_BYTES)
            found = await self._answer(scope, body)
            self._audit(scope, 200, logging.INFO if scope["method"] != "GET" else logging.DEBUG)
            await send_json(send, 200, json.dumps(found, indent=1).encode() + b"\n")
        except RequestRefused as refused:
            self._audit(scope, refused.fault.status, logging.INFO)
            await send_fault(send, refused.fault)
        except ClientGone:
            return
        except SemBlendError as error:
            self._audit(scope, 400, logging.INFO)
            await send_fault(send, Fault(400, "invalid_request_error", "refused", str(error)))

    def _audit(self, scope: MutableMapping[str, Any], status: int, level: int) -> None:
        """Who called what; at most ``_REFUSALS`` lines per second for wrong keys, and the number of those left out."""
        if status == 401:
            now_s = time.monotonic()
            if now_s - self._second_s >= 1.0:
                self._second_s, self._refusals = now_s, 0
            self._refusals += 1
            if self._refusals > _REFUSALS:
                self._left_out += 1
                return
        left_out, self._left_out = self._left_out, 0
        address = (scope.get("client") or ("unknown",))[0]
        path = scope["path"][:_PATH_CHARACTERS]
        log(
            level,
            "admin request",
            method=scope["method"],
            path=path,
            status=status,
            client=address,
            lines_left_out=left_out,
        )

    def _has_key(self, headers: Headers) -> bool:
        given = find(headers, ADMIN_KEY)
        if given is None:
            scheme, _, given = (find(headers, b"authorization") or b"").partition(b" ")
            given = given.strip() if scheme.lower() == b"bearer" else b""
        return hmac.compare_digest(hashlib.sha256(given).digest(), self._key_digest)

    async def _answer(self, scope: MutableMapping[str, Any], body: bytes) -> Any:
        parts = tuple(unquote(part) for part in scope["path"].strip("/").split("/"))
        if len(parts) < 2 or parts[0] != "admin":
            raise RequestRefused(NOT_FOUND)
        handler = _HANDLERS.get((scope["method"], parts[1], len(parts)))
        if handler is None:
            known = {(noun, count) for _, noun, count in _HANDLERS}
            raise RequestRefused(NO_METHOD if (parts[1], len(parts)) in known else NOT_FOUND)
        return await handler(self._router, parts, parse_qs(scope["query_string"].decode("latin-1")), body)


Handler = Callable[[Administered, tuple[str, ...], dict[str, list[str]], bytes], Awaitable[Any]]


async def _list_replicas(router: Administered, parts: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> Any:
    return {"policy": router.placer.policy, "replicas": router.roster.listed()}


async def _set_replicas(router: Administered, parts: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> Any:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    wanted = given.get("replicas") if isinstance(given, dict) else None
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise ConfigurationError('send {"replicas": ["http://host:port", ...]}')
    return router.reloader.set_replicas(tuple(wanted), "admin").as_record()


async def _drain(router: Administered, parts: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> Any:
    name, verb = parts[2], parts[3]
    if verb not in ("drain", "undrain"):
        raise RequestRefused(NOT_FOUND)
    router.roster.set_draining(name, draining=verb == "drain")
    return {"replica": name, "draining": verb == "drain"}


async def _reload(router: Administered, parts: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> Any:
    return router.reloader.reload("admin").as_record()


async def _decisions(router: Administered, parts: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> Any:
    limit = query.get("limit", ["100"])[0]
    is_number = limit.isascii() and limit.isdigit() and len(limit) <= len(str(MAX_LISTED))
    if not is_number or not 1 <= int(limit) <= MAX_LISTED:
        raise ConfigurationError(f"limit must be an integer from 1 to {MAX_LISTED}")
    return {"decisions": [record.as_record() for record in router.ring.latest(int(limit))]}


async def _decision(router: Administered, parts: tuple[str, ...], query: dict[str, list[str]], body: bytes) -> Any:
    found = router.ring.find(parts[2])
    if not found:
        raise RequestRefused(
            Fault(404, "invalid_request_error", "not_found", "No decision with this request id is in memory.")
        )
    return {"decisions": [record.as_record() for record in found]}


_HANDLERS: Final[dict[tuple[str, str, int], Handler]] = {
    ("GET", "replicas", 2): _list_replicas,
    ("PUT", "replicas", 2): _set_replicas,
    ("POST", "replicas", 4): _drain,
    ("POST", "reload", 2): _reload,
    ("GET", "decisions", 2): _decisions,
    ("GET", "decisions", 3): _decision,
}
