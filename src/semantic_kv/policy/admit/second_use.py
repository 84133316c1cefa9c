"""When full, admit a block only at its second use (a doorkeeper): one-off text never displaces anything.

Takes one byte per known node and is exact, where a production doorkeeper uses a Bloom filter. In a prefix tree, a
refused block also keeps out the blocks after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import AdmissionHooks, AdmissionPolicy, Cache, ReferenceAdmission, Setting, View
from sembase.compiled import kernel_part


class Reference(ReferenceAdmission):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._met: dict[int, int] = {}

    def on_hit(self, node: int) -> None:
        self._met[node] = 2

    def on_miss(self, node: int) -> None:
        self._met[node] = self._met.get(node, 0) + 1

    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return victim < 0 or self._met[node] >= 2


class State(NamedTuple):
    met: NDArray[np.uint8]  # 0, 1, 2 and more


def make_state(setting: Setting) -> State:
    return State(np.zeros(setting.node_count, np.uint8))


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    state.met[node] = 2


@kernel_part
def on_miss(cache: Cache, state: State, node: int) -> None:
    state.met[node] = 1 if state.met[node] == 0 else 2


@kernel_part
def admits(cache: Cache, state: State, node: int, victim: int, worth: float, victim_worth: float) -> bool:
    return bool(victim < 0 or state.met[node] >= 2)


POLICY = AdmissionPolicy("second_use", Reference, AdmissionHooks(make_state, admits, on_hit=on_hit, on_miss=on_miss))
