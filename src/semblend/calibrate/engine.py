"""A client of the server that calibration measures: a URL in; the model's name and answers out.

Failures are an ``OSError`` with the server's URL and its own error message.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.http.client import HttpFault, fetch_once
from semblend.guard.pair import TEXT

MAX_REPLY_BYTES: Final = 4 << 20
_SHOWN_CHARACTERS: Final = 300
_INVALID: Final = 400


class RefusedError(OSError):
    """The server refused one request as invalid, such as a prompt that is longer than its context."""


class Engine:
    def __init__(self, url: str, timeout_s: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"invalid --server {url} (expected a URL such as http://127.0.0.1:8000)")
        self._url = url.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s

    def ask(self, body: bytes) -> bytes:
        return self._fetch("POST", TEXT, body)

    def served_model(self) -> tuple[str, int | None]:
        """The first model the server lists, and the longest context it allows where the server reports it."""
        listed = self._fetch("GET", "/v1/models")
        try:
            first = json.loads(listed)["data"][0]
            name, context = str(first["id"]), first.get("max_model_len")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise OSError(f"{self._url}: /v1/models lists no model; set --served-name") from None
        return name, context if isinstance(context, int) and context > 0 else None

    def _fetch(self, method: str, path: str, body: bytes = b"") -> bytes:
        headers = ((b"content-type", b"application/json"),) if body else ()
        try:
            status, reply = fetch_once(
                method,
                self._url + path,
                headers=headers,
                body=body,
                timeout_s=self._timeout_s,
                max_bytes=MAX_REPLY_BYTES,
            )
        except HttpFault as fault:
            if fault.kind == "timeout" or fault.detail == "timed out":
                raise OSError(f"{self._url}: no answer within {self._timeout_s:g} s; increase --timeout-s") from None
            raise OSError(f"{self._url}: {_reason(fault)}; is the server running?") from None
        if not 200 <= status < 300:
            error = RefusedError if status == _INVALID else OSError
            raise error(f"{self._url}: {status}: {_message(reply) or 'no message'}")
        return reply


def _reason(fault: HttpFault) -> str:
    if fault.refused:
        return "connection refused"
    return str(getattr(fault.__cause__, "strerror", None) or fault).lower()


def _message(reply: bytes) -> str:
    """The error message of an OpenAI-compatible server; empty if the reply has another form."""
    try:
        record: Any = json.loads(reply)
        return str(record["error"]["message"])[:_SHOWN_CHARACTERS]
    except (ValueError, TypeError, KeyError):
        return ""
