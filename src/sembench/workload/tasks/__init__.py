"""Generated tasks with one right answer that only the document gives: a seed in, source records out.

Each task names the score that marks its answers and has an earlier revision of its document with another answer. Facts,
names and code are made up, so a model cannot know them.
"""

from __future__ import annotations

from typing import Final

from sembase.registry import Registry
from sembench.workload.tasks.base import Draft, DraftTask

TASKS: Final[Registry[DraftTask]] = Registry("task", group="sembench.tasks")

BUILT_IN: Final = {
    "plain_fact": "retrieval:plain_fact",
    "key_value": "retrieval:key_value",
    "multi_value": "retrieval:multi_value",
    "quote": "retrieval:quote",
    "count": "retrieval:count",
    "derived_stated": "derived:stated",
    "derived_rule": "derived:by_rule",
    "code_usage": "code:usage",
    "code_call": "code:call",
    "code_complete": "code:complete",
    "code_rename": "code:rename",
    "tool_call": "tool_call:in_text",
    "tool_call_api": "tool_call:by_api",
    "judge": "judge:judge",
}
DEFAULT: Final = tuple(name for name in BUILT_IN if name != "tool_call_api")
"""``tool_call_api`` needs a chat server with a tool parser, so it must be named."""

for _name, _home in BUILT_IN.items():
    TASKS.register(_name, f"sembench.workload.tasks.{_home}")

__all__ = ["BUILT_IN", "DEFAULT", "TASKS", "Draft", "DraftTask"]
