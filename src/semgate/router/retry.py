"""When another replica may be asked: before the first byte, for some statuses only, and within a budget.

In: the status of one attempt; out: whether to try again. Which paths may be asked twice says ``http/repeatable.py``.
"""

from __future__ import annotations

from typing import Final

REPEATABLE_STATUS: Final = frozenset({500, 502, 503, 504})
BURST: Final = 100.0


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
