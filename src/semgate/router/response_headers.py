"""The promised headers of a routed answer. They tell where a request went and why, never that KV was reused."""

from __future__ import annotations

import re
import secrets
from typing import Final

from semgate.http.headers import Headers, find, for_client
from semgate.placement.decision import Decision

REQUEST_ID: Final = b"x-request-id"
PATH: Final = b"x-semblend-routing-path"
WORKER: Final = b"x-semblend-routing-worker"
SIMILARITY: Final = b"x-semblend-routing-similarity"
REPLICA: Final = b"x-semantickv-replica"
_OURS: Final = frozenset({REQUEST_ID, PATH, WORKER, SIMILARITY, REPLICA})
_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


def request_id_of(headers: Headers) -> str:
    """The client's own id if it is a plain word, so that logs cannot be forged or fed with text; else a new one."""
    given = find(headers, REQUEST_ID)
    if given is not None and _SAFE_ID.fullmatch(given):
        return given.decode("ascii")
    return secrets.token_hex(16)


def routing_headers(request_id: str, decision: Decision | None) -> Headers:
    """Path and similarity would tell what others have sent, where what others have sent decided."""
    named: list[tuple[bytes, bytes]] = [(REQUEST_ID, request_id.encode())]
    if decision is not None:
        replica = decision.replica.encode()
        named += [(WORKER, replica), (REPLICA, replica)]
        if decision.own_evidence:
            named.append((PATH, decision.path.encode()))
        if decision.own_evidence and decision.similarity is not None:
            named.append((SIMILARITY, f"{decision.similarity:.4f}".encode()))
    return tuple(named)


def answer_headers(upstream: Headers, ours: Headers) -> list[tuple[bytes, bytes]]:
    """An upstream cannot speak in our name: its headers of ours are dropped."""
    return [*(pair for pair in for_client(upstream) if pair[0] not in _OURS), *ours]
