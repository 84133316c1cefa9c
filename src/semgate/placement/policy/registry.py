"""Policy names to policies; third parties register through the entry-point group ``semgate.placement``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sembase.registry import Registry
from semgate.placement.policy.interface import Policy, PolicyOptions

POLICIES: Final = Registry[Callable[[PolicyOptions], Policy]]("placement policy", "semgate.placement")

for _name, _class in (
    ("round_robin", "RoundRobin"),
    ("least_loaded", "LeastLoaded"),
    ("prefix_hash", "PrefixHash"),
    ("semantic_locality", "SemanticLocality"),
    ("precise_prefix", "PrecisePrefix"),
    ("semantic_placement", "SemanticPlacement"),
):
    POLICIES.register(_name, f"semgate.placement.policy.{_name}:{_class}")
