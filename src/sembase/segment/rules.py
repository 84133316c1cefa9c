"""The labelling rules: what a leading label or the look of a text says, and whose labels are believed.

Order: the application's metadata, then a leading label of a trusted author, then the role, then the look of the text.
"""

from __future__ import annotations

import re
from typing import Final

LONG_TEXT_WORDS: Final = 180  # longer unlabelled text is most likely a document

LEADING_LABELS: Final = {
    "SYSTEM": "system",
    "USER": "user",
    "ASSISTANT": "assistant",
    "TOOL": "tool_output",
    "CONTEXT": "retrieved_context",
    "TEMPLATE": "template",
    "CODE": "code",
}
LABEL_LINE: Final = re.compile(rf"^[ \t]*({'|'.join(LEADING_LABELS)}):", re.MULTILINE)

# What users, tools and the assistant may say about text they quote. Never a role: "SYSTEM:" typed by a user is the
# user's text.
MATERIAL_LABELS: Final = frozenset({"retrieved_context", "code"})

_CODE: Final = re.compile(
    r"```|^[ \t]*(?:def |class |import |from \w[\w.]* import |#include|function |const |let |public |private )"
    r"|\btraceback\b|\bpytest\b",
    re.MULTILINE | re.IGNORECASE,
)
_CONTEXT: Final = re.compile(r"retrieved context|\b(?:context|document|evidence|citation):", re.IGNORECASE)
_TOOL: Final = re.compile(r"tool output|observation:|function result", re.IGNORECASE)
_TEMPLATE: Final = re.compile(r"\{\{|\}\}|\{input\}|\{question\}|template:", re.IGNORECASE)


def leading_label(text: str) -> str | None:
    """The label a text opens with, as ``CONTEXT: ...``."""
    found = LABEL_LINE.match(text.lstrip())
    return LEADING_LABELS[found.group(1)] if found else None


def believed_label(claimed: str, role_label: str) -> str:
    """The label an author may give to its own text, else its role's.

    System and developer messages are written by the application and may say anything. A user, a tool or the assistant
    may mark material it quotes (``CONTEXT:``, ``CODE:``), but cannot promote itself to another role.
    """
    return claimed if role_label == "system" or claimed in MATERIAL_LABELS else role_label


def look_of(text: str) -> str:
    """The label of a text that nobody labelled."""
    if _CODE.search(text):
        return "code"
    if _CONTEXT.search(text):
        return "retrieved_context"
    if _TOOL.search(text):
        return "tool_output"
    if _TEMPLATE.search(text):
        return "template"
    return "retrieved_context" if len(text.split()) > LONG_TEXT_WORDS else "other"
