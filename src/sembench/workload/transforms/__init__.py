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

ANSWERED: Final = (
    "instruction_variant",
    "rag_reorder",
    "multi_donor_composite",
    "field_edit",
    "unread_document",
    "negative_control",
)
"""The default of the profile ``answers``: the ways in which a document is served again, and two controls."""

_HOMES: Final = {"fuzzy_edit_1pct": "fuzzy_edit:one_percent", "fuzzy_edit_5pct": "fuzzy_edit:five_percent"}

for _name in dict.fromkeys((*PAIRED, *ANSWERED, "recorded", "stream")):
    TRANSFORMS.register(_name, "sembench.workload.transforms." + _HOMES.get(_name, f"{_name}:{_name}"))

__all__ = ["ANSWERED", "PAIRED", "TRANSFORMS", "Skipped", "Transform", "TransformContext"]
