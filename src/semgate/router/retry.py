"""When another replica may be asked: before the first byte, where it does no harm, and within a budget.

In: the fault or status of one attempt; out: whether to try again. A completion only computes, so asking twice is safe;
a path that stores something is asked again only if the request surely never arrived.
"""

from __future__ import annotations

from typing import Final

REPEATABLE_STATUS: Final = frozenset({500, 502, 503, 504})
KEEPS_STATE: Final = ("/v1/responses",)
BURST: Final = 100.0


def is_repeatable(method: str, path: str) -> bool:
    """Asking twice leaves nothing behind on a replica."""
    return method in ("GET", "HEAD") or (method == "POST" and not path.startswith(KEEPS_STATE))


class RetryBudget:
    """A token bucket: each request earns ``share`` of a retry, a burst is free. State: one number.

    Pays for retries after errors and timeouts only. A connection that was refused or lost says that the replica is
    gone: those are bounded by ``max_attempts`` and the breaker, and giving them up would lose requests for nothing.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._tokens = BURST

    def earn(self) -> None:
        self._tokens = min(BURST, self._tokens + self._share)

    def spend(self) -> bool:
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
