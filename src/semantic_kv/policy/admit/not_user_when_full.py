"""When full, refuse user text, by label. This one rule explains the gains that the original published."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import AdmissionHooks, AdmissionPolicy, Cache, ReferenceAdmission, Setting
from sembase.compiled import kernel_part
from sembase.labels import OTHER, label_index

_USER = label_index("user")
_DEFAULTS = {"other": 0.0}  # 1: refuse blocks labelled `other` too, as the adaptive policy of the original does


def _refused_labels(setting: Setting) -> NDArray[np.uint8]:
    refused = np.zeros(256, np.uint8)
    refused[_USER] = 1
    refused[OTHER] = setting.options["other"] != 0
    return refused


class Reference(ReferenceAdmission):
    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return victim < 0 or not _refused_labels(self.setting)[self.view.label[node]]


class State(NamedTuple):
    refused: NDArray[np.uint8]


def make_state(setting: Setting) -> State:
    return State(_refused_labels(setting))


@kernel_part
def admits(cache: Cache, state: State, node: int, victim: int, worth: float, victim_worth: float) -> bool:
    return bool(victim < 0 or state.refused[cache.label[node]] == 0)


POLICY = AdmissionPolicy("not_user_when_full", Reference, AdmissionHooks(make_state, admits), _DEFAULTS)
