"""Between callers and the routes: bodies are bounded, and every fault is one sentence of JSON, no stack trace."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sembase.errors import SemBlendError

_SHOWN_CHARS: Final = 300
_SHOWN_FAULTS: Final = 3


class BodyLimit:
    """Refuses bodies by their announced length, and by what really comes when nothing was announced."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or int(announced[:18]) > self._most_bytes:
            await fault(413, "too_large", self._sentence())(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most_bytes:
                raise HTTPException(413, self._sentence())
            return message

        await self._app(scope, counted, send)

    def _sentence(self) -> str:
        return f"a body has at most {self._most_bytes:,} bytes"


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
    """Where and what, never the value: it is the caller's text."""
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
    """The server's log has the rest; a caller has no use for it."""
    return fault(500, "internal", "the service met an error of its own; its log tells more")
