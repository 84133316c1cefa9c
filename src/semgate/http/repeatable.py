"""Which requests may be sent twice. Asked by the client when a kept connection died, by the router before a retry.

A completion only computes, so asking twice is safe; a path that stores something is asked again only if the request
surely never arrived.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

_KEEPS_STATE: Final = "/responses"


def is_repeatable(method: str, path: str) -> bool:
    """Asking twice leaves nothing behind. ``path`` may be as the client wrote it: escaped, with prefix and query."""
    if method in ("GET", "HEAD"):
        return True
    return method == "POST" and _KEEPS_STATE not in unquote(path.partition("?")[0])
