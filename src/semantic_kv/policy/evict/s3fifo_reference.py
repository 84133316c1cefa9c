"""S3-FIFO in plain Python: lists, oldest first. The oracle of `s3fifo`."""

from __future__ import annotations

from collections import Counter

from semantic_kv.policy.interface import ReferenceEviction, Setting, View

_MAX_MAIN_USES = 3


def limits_of(setting: Setting) -> tuple[int, int, int, int]:
    """Sizes of the small queue, the main queue and the ghost, and the uses that earn a place in the main queue."""
    small = int(setting.capacity * setting.options["small_ratio"])
    ghost = int(setting.capacity * setting.options["ghost_ratio"])
    return small, setting.capacity - small, ghost, int(setting.options["promote_at"])


class Reference(ReferenceEviction):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._small_size, self._main_size, self._ghost_size, self._promote_at = limits_of(setting)
        self._queues: dict[str, list[int]] = {"small": [], "main": []}
        self._members: dict[str, set[int]] = {"small": set(), "main": set()}  # the queues' blocks, inner ones too
        self._ghost: list[int] = []
        self._uses = Counter[int]()
        self._has_evicted = False
        self._returning = -1

    def _size(self, nodes: set[int] | list[int]) -> int:
        return sum(self.view.size_of(node) for node in nodes)

    def _queue_of(self, node: int) -> str:
        return "small" if node in self._members["small"] else "main"

    def _is_queued(self, node: int) -> bool:
        return any(node in queue for queue in self._queues.values())

    def on_hit(self, node: int) -> None:
        self._uses[node] += 1

    def on_miss(self, node: int) -> None:
        self._returning = -1
        if node in self._ghost:
            self._ghost.remove(node)
            self._returning = node

    def on_admit(self, node: int) -> None:
        is_filling = not self._has_evicted and self._size(self._members["small"]) >= self._small_size
        self._members["main" if is_filling or node == self._returning else "small"].add(node)
        self._uses[node] = 0
        parent = int(self.view.parent[node])
        if self._is_queued(parent):
            self._queues[self._queue_of(parent)].remove(parent)

    def on_release(self, node: int) -> None:
        if self.view.is_leaf(node) and not self._is_queued(node):
            self._queues[self._queue_of(node)].append(node)

    def on_evict(self, node: int) -> None:
        name = self._queue_of(node)
        at = self._queues[name].index(node)
        del self._queues[name][at]
        self._members[name].remove(node)
        parent = self.view.freed_parent(node)
        if parent >= 0 and not self._is_queued(parent):
            own = self._queue_of(parent)
            self._queues[own].insert(at if own == name else 0, parent)
        if name == "small" and self.view.size_of(node) <= self._ghost_size:
            self._ghost.append(node)
            while self._size(self._ghost) > self._ghost_size:
                del self._ghost[0]

    def victim(self, incoming: int) -> int:
        self._has_evicted = True
        name = "main" if self._size(self._members["main"]) > self._main_size else "small"
        while True:
            free = {
                kind: [node for node in queue if not self.view.is_pinned(node)] for kind, queue in self._queues.items()
            }
            if not free["small"] and not free["main"]:
                return -1
            if not free[name]:
                name = "small" if name == "main" else "main"
            node = free[name][0]
            if self._uses[node] < (self._promote_at if name == "small" else 1):
                return node
            self._go_round(node, name)

    def _go_round(self, node: int, name: str) -> None:
        self._queues[name].remove(node)
        self._queues["main"].append(node)
        if name == "small":
            self._members["small"].remove(node)
            self._members["main"].add(node)
            self._uses[node] = 0
        else:
            self._uses[node] = min(self._uses[node], _MAX_MAIN_USES) - 1
