"""A client of the server that calibration measures: a URL in; the model's name and answers out.

Failures are an ``OSError`` with the server's URL and its own error message.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

from sembase.errors import ConfigurationError
from semblend.guard.pair import TEXT

MAX_REPLY_BYTES: Final = 4 << 20
_SHOWN_CHARACTERS: Final = 300


class Engine:
    def __init__(self, url: str, timeout_s: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"invalid --server {url} (expected a URL such as http://127.0.0.1:8000)")
        self._url = url.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s

    def ask(self, body: bytes) -> bytes:
        return self._open(urllib.request.Request(self._url + TEXT, body, {"content-type": "application/json"}))

    def served_name(self) -> str:
        """The first model the server lists."""
        reply = self._open(urllib.request.Request(self._url + "/v1/models"))
        try:
            return str(json.loads(reply)["data"][0]["id"])
        except (ValueError, TypeError, KeyError, IndexError):
            raise OSError(f"{self._url}: /v1/models lists no model; set --served-name") from None

    def _open(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
                body: bytes = reply.read(MAX_REPLY_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                why = _message(error.read(MAX_REPLY_BYTES))
            raise OSError(f"{self._url}: {error.code}: {why or error.reason}") from None
        except TimeoutError:
            raise OSError(f"{self._url}: no answer within {self._timeout_s:g} s; increase --timeout-s") from None
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or str(error.reason)
            raise OSError(f"{self._url}: {why.lower()}; is the server running?") from None
        return body


def _message(body: bytes) -> str:
    """The error message of an OpenAI-compatible server; empty if the reply has another form."""
    try:
        record: Any = json.loads(body)
        return str(record["error"]["message"])[:_SHOWN_CHARACTERS]
    except (ValueError, TypeError, KeyError):
        return ""
