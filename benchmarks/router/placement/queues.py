"""What the router would know of each simulated replica, and when its prefill queue really ends. Used by ``replay``."""

from __future__ import annotations

import heapq
from collections import deque

from benchmarks.router.placement.fleet import REPLICAS
from semgate.placement import ReplicaView


class Clock:
    """The load's time, in seconds, for the Placer."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms / 1e3


class Queues:
    """What the router would know of each replica (its own bookkeeping), and the true end of its prefill queue."""

    def __init__(self) -> None:
        self.free_at_ms = [0.0] * REPLICAS
        self.queued = [0] * REPLICAS
        self.in_flight = [0] * REPLICAS
        self.waiting: list[deque[int]] = [deque() for _ in range(REPLICAS)]
        self.head_since_s = [0.0] * REPLICAS
        self.names = [f"replica-{slot:02d}" for slot in range(REPLICAS)]
        self.views = [ReplicaView(name, slot) for slot, name in enumerate(self.names)]
        self._events: list[tuple[float, int, bool]] = []

    def advance(self, now_ms: float) -> None:
        events = self._events
        while events and events[0][0] <= now_ms:
            at_ms, slot, is_first_token = heapq.heappop(events)
            if is_first_token:
                self.queued[slot] -= self.waiting[slot].popleft()
                self.head_since_s[slot] = at_ms / 1e3
            else:
                self.in_flight[slot] -= 1
            self._renew(slot)

    def join(self, slot: int, now_ms: float, believed_tokens: int, work_ms: float, decode_ms: float) -> float:
        """Wait of the request; the router counts the tokens it believes are to be computed."""
        wait_ms = max(self.free_at_ms[slot] - now_ms, 0.0)
        first_ms = now_ms + wait_ms + work_ms
        self.free_at_ms[slot] = first_ms
        if not self.waiting[slot]:
            self.head_since_s[slot] = now_ms / 1e3
        self.waiting[slot].append(believed_tokens)
        self.queued[slot] += believed_tokens
        self.in_flight[slot] += 1
        heapq.heappush(self._events, (first_ms, slot, True))
        heapq.heappush(self._events, (first_ms + decode_ms, slot, False))
        self._renew(slot)
        return wait_ms

    def _renew(self, slot: int) -> None:
        waiting = self.waiting[slot]
        self.views[slot] = ReplicaView(
            self.names[slot],
            slot,
            "ready",
            self.in_flight[slot],
            self.queued[slot],
            head_prefill_tokens=waiting[0] if waiting else 0,
            head_since_s=self.head_since_s[slot],
        )
