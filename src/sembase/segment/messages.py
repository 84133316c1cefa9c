"""A chat message as the segmenter reads it, and how it is parsed from the OpenAI format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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


def parse_message(value: object, where: str) -> Message:
    """OpenAI messages: content is text or a list of parts. Parts that are not text (images) are rejected.

    Protocol fields without prompt text (``name``, ``tool_call_id``, ...) are accepted and ignored.
    """
    if not isinstance(value, dict):
        raise ContractError(f"{where}: expected an object with role and content, found {type(value).__name__}")
    role = value.get("role")
    metadata = value.get("metadata") or {}
    label = metadata.get("semantic_type") if isinstance(metadata, dict) else None
    try:
        return Message(role if isinstance(role, str) else repr(role), _content(value.get("content")), label)
    except ContractError as error:
        raise ContractError(f"{where}: {error}") from None


def _content(content: Any) -> str:
    if content is None:  # an assistant message that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ContractError("content must be text or a list of text parts")
    texts = []
    for number, part in enumerate(content):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise ContractError(f"part {number}: only parts of type 'text' can be segmented")
        texts.append(text)
    return "".join(texts)
