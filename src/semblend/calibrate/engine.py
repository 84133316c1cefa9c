"""A running server as calibration asks it: a URL goes in; its model's name and its answers come out.

What goes wrong is an ``OSError`` that names the server and repeats its own words.
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
            raise ConfigurationError(f"--server {url}: write a URL such as http://127.0.0.1:8000")
        self._url = url.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s

    def ask(self, body: bytes) -> bytes:
        return self._open(urllib.request.Request(self._url + TEXT, body, {"content-type": "application/json"}))

    def served_name(self) -> str:
        """The first model the server lists."""
        said = self._open(urllib.request.Request(self._url + "/v1/models"))
        try:
            return str(json.loads(said)["data"][0]["id"])
        except (ValueError, TypeError, KeyError, IndexError):
            raise OSError(f"{self._url}: /v1/models names no model; give --served-name") from None

    def _open(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
                said: bytes = reply.read(MAX_REPLY_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                why = _message(error.read(MAX_REPLY_BYTES))
            raise OSError(f"{self._url}: {error.code}: {why or error.reason}") from None
        except TimeoutError:
            raise OSError(f"{self._url}: no answer in {self._timeout_s:g} s; give a longer --timeout-s") from None
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or str(error.reason)
            raise OSError(f"{self._url}: {why.lower()}; is the server running?") from None
        return said


def _message(said: bytes) -> str:
    """What an OpenAI-like server says of an error; nothing where it says it otherwise."""
    try:
        record: Any = json.loads(said)
        return str(record["error"]["message"])[:_SHOWN_CHARACTERS]
    except (ValueError, TypeError, KeyError):
        return ""
