"""An eviction policy of your own: evict the block used most recently. One method is enough.

By name in every command: the entry point ``mru = "my_package:MostRecentlyUsed"`` in the group ``semantic_kv.eviction``.
"""

from semantic_kv.policy.interface import ReferenceEviction, Setting, View
from semantic_kv.simulate import simulate
from semantic_kv.workload import make_workload


class MostRecentlyUsed(ReferenceEviction):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._order: dict[int, None] = {}

    def on_release(self, node: int) -> None:
        self._order.pop(node, None)
        self._order[node] = None  # a dict keeps the order in which keys came

    def victim(self, incoming: int) -> int:
        return next((node for node in reversed(self._order) if self.view.is_evictable(node)), -1)


workload = make_workload("low_memory_rag_stress", seed=7, sessions=8, requests_per_session=5)
lru = simulate(workload.trace, capacity=workload.capacity_tokens, unit="tokens", evict="lru")
mine = simulate(workload.trace, capacity=workload.capacity_tokens, unit="tokens", evict=MostRecentlyUsed)
print(f"tokens hit of {lru.prompt_tokens}: LRU {lru.hit_tokens}, MostRecentlyUsed {mine.hit_tokens}")
