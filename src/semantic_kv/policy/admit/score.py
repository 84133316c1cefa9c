"""When full, admit a block only if the eviction policy values it at least as highly as the block it would displace.

With `static_semantic` and `adaptive_semantic` this is their published admission. With an eviction policy without
worth, every block is admitted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import AdmissionHooks, AdmissionPolicy, Cache, ReferenceAdmission, Setting
from sembase.compiled import kernel_part


class Reference(ReferenceAdmission):
    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return victim < 0 or worth >= victim_worth


class State(NamedTuple):
    nothing: NDArray[np.uint8]


def make_state(setting: Setting) -> State:
    return State(np.empty(0, np.uint8))


@kernel_part
def admits(cache: Cache, state: State, node: int, victim: int, worth: float, victim_worth: float) -> bool:
    return bool(victim < 0 or worth >= victim_worth)


POLICY = AdmissionPolicy("score", Reference, AdmissionHooks(make_state, admits))
