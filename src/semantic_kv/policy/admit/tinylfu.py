"""TinyLFU: when full, admit a block only if it was requested more often recently than the block it would displace.

The counts are a sketch of fixed size (`structure.sketch`): 4 bytes per block of capacity.
"""

from __future__ import annotations

from semantic_kv.policy.interface import AdmissionHooks, AdmissionPolicy, Cache, ReferenceAdmission, Setting, View
from semantic_kv.policy.structure.sketch import Sketch, add_to, count_of, make_sketch
from sembase.compiled import kernel_part


class Reference(ReferenceAdmission):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._sketch = make_sketch(setting.capacity)

    def on_hit(self, node: int) -> None:
        add_to(self._sketch, node)

    def on_miss(self, node: int) -> None:
        add_to(self._sketch, node)

    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return victim < 0 or count_of(self._sketch, node) > count_of(self._sketch, victim)


def make_state(setting: Setting) -> Sketch:
    return make_sketch(setting.capacity)


@kernel_part
def seen(cache: Cache, state: Sketch, node: int) -> None:
    add_to(state, node)


@kernel_part
def admits(cache: Cache, state: Sketch, node: int, victim: int, worth: float, victim_worth: float) -> bool:
    return bool(victim < 0 or count_of(state, node) > count_of(state, victim))


POLICY = AdmissionPolicy("tinylfu", Reference, AdmissionHooks(make_state, admits, on_hit=seen, on_miss=seen))
