"""A chat message as the segmenter takes it, and its parsing from the OpenAI form."""

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
    """``semantic_type`` comes from the application that made the request, so it is trusted; text is not."""

    role: str
    content: str
    semantic_type: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLE_LABELS:
            raise ContractError(f"role {self.role!r:.40} is none of {', '.join(ROLE_LABELS)}")
        if self.semantic_type is not None and self.semantic_type not in LABELS:
            raise ContractError(f"semantic_type {self.semantic_type!r:.40} is none of {', '.join(LABELS)}")


def parse_message(value: object, where: str) -> Message:
    """OpenAI messages: content is text or a list of parts; parts that are no text (images) are refused by name.

    Fields of the protocol that hold no prompt text of ours (``name``, ``tool_call_id``, ...) are accepted and unused.
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
    if content is None:  # an assistant's message that only calls tools
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
