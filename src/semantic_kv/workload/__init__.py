"""Seeded request streams, one file each: the five stress workloads of the published description, and basic ones."""

from __future__ import annotations

from typing import Final

from semantic_kv.workload.interface import Workload, WorkloadKind
from semantic_kv.workload.make import draw_workload
from sembase.registry import Registry

WORKLOADS: Final[Registry[WorkloadKind]] = Registry("workload", "semantic_kv.workload")
STRESS: Final = (
    "low_memory_rag_stress",
    "shared_system_prompt_high_reuse",
    "tool_agent_session_reuse",
    "legal_review_long_context",
    "workload_shift_static_vs_adaptive",
)
BASIC: Final = ("multi_turn_chat", "zipf_documents", "shuffled_retrieval", "scan_beside_hot_set")
for _name in (*STRESS, *BASIC):
    WORKLOADS.register(_name, f"semantic_kv.workload.{_name}:KIND")


def make_workload(
    name: str,
    *,
    seed: int | None = None,
    sessions: int | None = None,
    requests_per_session: int | None = None,
    tenants: int = 1,
) -> Workload:
    """A workload by name. What is not given is as published (seed, sessions x requests)."""
    return draw_workload(
        WORKLOADS.get(name), seed=seed, sessions=sessions, requests_per_session=requests_per_session, tenants=tenants
    )


__all__ = ["BASIC", "STRESS", "WORKLOADS", "Workload", "WorkloadKind", "make_workload"]
