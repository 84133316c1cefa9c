"""ARC in plain Python: four lists, least recent first. The oracle of `arc`."""

from __future__ import annotations

from semantic_kv.policy.interface import ReferenceEviction, Setting, View


class Reference(ReferenceEviction):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._once: list[int] = []
        self._again: list[int] = []
        self._once_ghost: list[int] = []
        self._again_ghost: list[int] = []
        self._target = 0.0
        self._returning: tuple[int, str] = (-1, "")
        self._plan: tuple[int, str] = (-1, "")

    def _size(self, nodes: list[int]) -> int:
        return sum(self.view.size_of(node) for node in nodes)

    def on_hit(self, node: int) -> None:
        if node in self._once:
            self._once.remove(node)
            self._again.append(node)

    def on_miss(self, node: int) -> None:
        once, again = self._size(self._once_ghost), self._size(self._again_ghost)
        self._returning = (-1, "")
        if node in self._once_ghost:
            self._target = min(self._target + max(again / once, 1.0), self.setting.capacity)
            self._once_ghost.remove(node)
            self._returning = (node, "once")
        elif node in self._again_ghost:
            self._target = max(self._target - max(once / again, 1.0), 0.0)
            self._again_ghost.remove(node)
            self._returning = (node, "again")

    def on_admit(self, node: int) -> None:
        (self._again if self._returning[0] == node else self._once).append(node)

    def on_release(self, node: int) -> None:
        own = self._once if node in self._once else self._again
        own.remove(node)
        own.append(node)

    def victim(self, incoming: int) -> int:
        plan = self._ghost_plan(incoming)
        once, capacity_of_once = self._size(self._once), self._target
        is_even = once == capacity_of_once and self._returning == (incoming, "again")
        from_once = once > 0 and (once > capacity_of_once or is_even)
        lists = [self._again, self._once]
        if from_once or not self._again or plan == "no ghost":
            lists.reverse()
        for nodes in lists:
            oldest = next((node for node in nodes if not self.view.is_pinned(node)), -1)
            if oldest >= 0 and self.view.is_leaf(oldest):
                self._plan = (oldest, plan)
                return oldest
        return -1

    def _ghost_plan(self, incoming: int) -> str:
        if self._returning[0] == incoming:
            return ""
        once = self._size(self._once + self._once_ghost)
        if once + self.view.size_of(incoming) > self.setting.capacity:
            return "forget once" if self._once_ghost else "no ghost"
        is_full = once + self._size(self._again + self._again_ghost) >= 2 * self.setting.capacity
        return "forget again" if is_full and self._again_ghost else ""

    def on_evict(self, node: int) -> None:
        plan = self._plan[1] if self._plan[0] == node else ""
        if plan.startswith("forget"):
            del (self._once_ghost if plan == "forget once" else self._again_ghost)[0]
        own, ghost = (self._once, self._once_ghost) if node in self._once else (self._again, self._again_ghost)
        own.remove(node)
        if plan != "no ghost":
            ghost.append(node)
        self._plan = (-1, "")
