"""Request body limits, what a web page may not send, and error responses: one JSON object, never a stack trace."""

from __future__ import annotations

import ipaddress
import logging
from typing import Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sembase.errors import SemBlendError

_SHOWN_CHARS: Final = 300
_SHOWN_FAULTS: Final = 3
_LOGGER: Final = logging.getLogger("semantic_kv")


class BodyLimit:
    """Rejects a body by its content-length, or by the bytes received if the header is missing."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared[:18]) > self._max_bytes:
            await fault(413, "too_large", self._sentence())(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, self._sentence())
            return message

        await self._app(scope, counted, send)

    def _sentence(self) -> str:
        return f"the body is larger than {self._max_bytes:,} bytes"


class LocalHost:
    """Refuses a request under a name that is not this machine's: a web page can let its own name point here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not _is_local(dict(scope["headers"]).get(b"host", b"")):
            app = fault(403, "foreign_host", "the Host header must be localhost or a loopback address")
        await app(scope, receive, send)


def require_json(request: Request) -> None:
    """A web page can make a browser send a change here, but not with this type."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send content-type: application/json")


def _is_local(host: bytes) -> bool:
    try:
        name = urlsplit(f"//{host.decode('ascii')}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def fault(status: int, kind: str, message: str) -> JSONResponse:
    shown = "".join(letter if letter.isprintable() else " " for letter in message)[:_SHOWN_CHARS]
    return JSONResponse({"error": {"kind": kind, "message": shown}}, status_code=status)


def install_fault_handlers(app: FastAPI) -> None:
    app.add_exception_handler(SemBlendError, _on_user_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)


async def _on_user_error(_: Request, error: Exception) -> JSONResponse:
    return fault(422, "unprocessable", str(error))


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    """Reports where and what is wrong, never the value: it is the client's text."""
    assert isinstance(error, RequestValidationError)
    faults = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()[:_SHOWN_FAULTS]
    ]
    return fault(422, "invalid", "; ".join(faults))


async def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    response = fault(error.status_code, "refused", str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def _on_bug(_: Request, error: Exception) -> JSONResponse:
    """Details go to the server log, not to the client."""
    _LOGGER.error("internal error", exc_info=error)
    return fault(500, "internal", "internal error; see the service log")
