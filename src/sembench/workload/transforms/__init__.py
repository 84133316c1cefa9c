"""Transforms: a source record in, one workload item out. One file each; third parties add theirs by entry point."""

from __future__ import annotations

from typing import Final

from sembase.registry import Registry
from sembench.workload.transforms.base import Skipped, Transform, TransformContext

TRANSFORMS: Final[Registry[Transform]] = Registry("transform", group="sembench.transforms")

PAIRED: Final = (
    "exact_repeat",
    "instruction_variant",
    "same_evidence_new_task",
    "leading_evidence_new_task",
    "rag_reorder",
    "multi_donor_composite",
    "fuzzy_edit",
    "fuzzy_edit_1pct",
    "fuzzy_edit_5pct",
    "negative_control",
    "entity_swap",
    "number_swap",
    "negation",
    "cross_tenant",
)
"""The default order of ``build``: every transform that makes a donor and a recipient."""

_HOMES: Final = {"fuzzy_edit_1pct": "fuzzy_edit:one_percent", "fuzzy_edit_5pct": "fuzzy_edit:five_percent"}

for _name in (*PAIRED, "recorded", "stream"):
    TRANSFORMS.register(_name, "sembench.workload.transforms." + _HOMES.get(_name, f"{_name}:{_name}"))

__all__ = ["PAIRED", "TRANSFORMS", "Skipped", "Transform", "TransformContext"]
