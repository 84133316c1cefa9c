"""Policy names to policies; third parties come in by entry points and may register a bare plain-Python class."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Final

from semantic_kv.policy.interface import (
    AdmissionPolicy,
    EvictionPolicy,
    ReferenceAdmission,
    ReferenceEviction,
    Setting,
    View,
)
from sembase.errors import ConfigurationError
from sembase.registry import Registry

EvictionTarget = EvictionPolicy | Callable[[Setting, View], ReferenceEviction]
AdmissionTarget = AdmissionPolicy | Callable[[Setting, View], ReferenceAdmission]

EVICTION: Final = Registry[EvictionTarget]("eviction policy", "semantic_kv.eviction")
ADMISSION: Final = Registry[AdmissionTarget]("admission policy", "semantic_kv.admission")

_EVICTION_NAMES = (
    "fifo",
    "lru",
    "lfu",
    "s3fifo",
    "sieve",
    "arc",
    "size_aware_lru",
    "static_semantic",
    "adaptive_semantic",
    "session_pace",
)
_ADMISSION_NAMES = ("always", "not_user_when_full", "second_use", "tinylfu", "score")

for _name in _EVICTION_NAMES:
    EVICTION.register(_name, f"semantic_kv.policy.evict.{_name}:POLICY")
for _name in _ADMISSION_NAMES:
    ADMISSION.register(_name, f"semantic_kv.policy.admit.{_name}:POLICY")


def eviction(given: str | EvictionTarget) -> EvictionPolicy:
    """By its registered name, or the policy itself: an ``EvictionPolicy`` or a plain-Python class."""
    target = EVICTION.get(given) if isinstance(given, str) else given
    return target if isinstance(target, EvictionPolicy) else EvictionPolicy(_name_of(given), target)


def admission(given: str | AdmissionTarget) -> AdmissionPolicy:
    """By its registered name, or the policy itself: an ``AdmissionPolicy`` or a plain-Python class."""
    target = ADMISSION.get(given) if isinstance(given, str) else given
    return target if isinstance(target, AdmissionPolicy) else AdmissionPolicy(_name_of(given), target)


def _name_of(given: object) -> str:
    return given if isinstance(given, str) else str(getattr(given, "__name__", type(given).__name__))


def merged_options(policy: EvictionPolicy | AdmissionPolicy, given: Mapping[str, float] | None) -> Mapping[str, float]:
    """The policy's defaults with the user's values over them; a name it does not know is an error."""
    for name in given or {}:
        if name not in policy.defaults:
            near = difflib.get_close_matches(name, policy.defaults, n=1)
            known = ", ".join(policy.defaults) or "none"
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigurationError(f"policy '{policy.name}' has no option '{name}'; known: {known}.{hint}")
    return {**policy.defaults, **(given or {})}
