"""Profiles of ``build``: where source records come from. Each is a function of a :class:`SourceRequest`."""

from __future__ import annotations

from typing import Final

from sembase.registry import Registry
from sembench.workload.sources.base import Source, SourceRequest

SOURCES: Final[Registry[Source]] = Registry("profile", group="sembench.sources")

BUILT_IN: Final = {
    "fixture": "fixture:read_fixture",
    "longbench-v1": "longbench:read_longbench_v1",
    "longbench-v2": "longbench:read_longbench_v2",
    "jsonl": "local:read_local",
    "agent-trace": "agent_trace:read_agent_traces",
    "synthetic-v1": "synthetic:read_synthetic",
    "answers": "answers:read_answers",
}

for _name, _home in BUILT_IN.items():
    SOURCES.register(_name, f"sembench.workload.sources.{_home}")

__all__ = ["BUILT_IN", "SOURCES", "Source", "SourceRequest"]
