"""An admission policy of your own: a long block enters only while there is room.

By name: the entry point ``short = "my_package:ShortBlocksOnly"`` in the group ``semantic_kv.admission``.
"""

from semantic_kv.policy.interface import ReferenceAdmission
from semantic_kv.simulate import simulate
from semantic_kv.workload import make_workload

LONG_TOKENS = 300


class ShortBlocksOnly(ReferenceAdmission):
    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return victim < 0 or int(self.view.tokens[node]) < LONG_TOKENS


workload = make_workload("low_memory_rag_stress", seed=7, sessions=8, requests_per_session=5)
always = simulate(workload.trace, capacity=workload.capacity_tokens, unit="tokens", admit="always")
mine = simulate(workload.trace, capacity=workload.capacity_tokens, unit="tokens", admit=ShortBlocksOnly)
print(f"tokens hit of {always.prompt_tokens}: always {always.hit_tokens}, ShortBlocksOnly {mine.hit_tokens}")
