"""A chat message as the segmenter reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sembase.errors import ContractError
from sembase.labels import LABELS

ROLE_LABELS: Final[Mapping[str, str]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool_output",
    "function": "tool_output",
}


@dataclass(frozen=True, slots=True)
class Message:
    """``semantic_type`` is set by the application that made the request, so it is trusted; text is not."""

    role: str
    content: str
    semantic_type: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLE_LABELS:
            raise ContractError(f"unknown role {self.role!r:.40}; known: {', '.join(ROLE_LABELS)}")
        if self.semantic_type is not None and self.semantic_type not in LABELS:
            raise ContractError(f"unknown semantic_type {self.semantic_type!r:.40}; known: {', '.join(LABELS)}")
