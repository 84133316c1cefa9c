"""Every block may enter: what LRU caches and today's engines do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import AdmissionHooks, AdmissionPolicy, Cache, ReferenceAdmission, Setting
from sembase.compiled import kernel_part


class Reference(ReferenceAdmission):
    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return True


class State(NamedTuple):
    nothing: NDArray[np.uint8]


def make_state(setting: Setting) -> State:
    return State(np.empty(0, np.uint8))


@kernel_part
def admits(cache: Cache, state: State, node: int, victim: int, worth: float, victim_worth: float) -> bool:
    return True


POLICY = AdmissionPolicy("always", Reference, AdmissionHooks(make_state, admits))
