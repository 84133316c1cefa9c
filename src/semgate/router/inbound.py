"""A request ready to go up: what the replica may see of it, and the body as received. Made by the app."""

from __future__ import annotations

from dataclasses import dataclass

from semgate.http.headers import Headers
from semgate.http.held_body import HeldBody


@dataclass(frozen=True, slots=True)
class Inbound:
    """``target`` is the path as the client wrote it, with its query; ``body`` is let go when an answer has begun."""

    method: str
    path: str
    target: str
    headers: Headers
    body: HeldBody
