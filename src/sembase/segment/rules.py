"""The labelling rules: leading labels, labels guessed from the text, and whose labels are trusted.

Order: the application's metadata, then a leading label of a trusted author, then the role, then a guess from the text.
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

# Labels that users, tools and the assistant may give to text they quote. Never a role: "SYSTEM:" typed by a user is
# user text.
QUOTABLE_LABELS: Final = frozenset({"retrieved_context", "code"})

_CODE: Final = re.compile(
    r"```|^[ \t]*(?:def |class |import |from \w[\w.]* import |#include|function |const |let |public |private )"
    r"|\btraceback\b|\bpytest\b",
    re.MULTILINE | re.IGNORECASE,
)
_CONTEXT: Final = re.compile(r"retrieved context|\b(?:context|document|evidence|citation):", re.IGNORECASE)
_TOOL: Final = re.compile(r"tool output|observation:|function result", re.IGNORECASE)
_TEMPLATE: Final = re.compile(r"\{\{|\}\}|\{input\}|\{question\}|template:", re.IGNORECASE)
_RULES: Final = {"code": _CODE, "retrieved_context": _CONTEXT, "tool_output": _TOOL, "template": _TEMPLATE}
# A text without any of these words does not match the rule.
_WORDS: Final = {
    "code": (
        *("```", "def ", "class ", "import ", "#include", "function ", "const ", "let ", "public ", "private "),
        *("traceback", "pytest"),
    ),
    "retrieved_context": ("retrieved context", "context:", "document:", "evidence:", "citation:"),
    "tool_output": ("tool output", "observation:", "function result"),
    "template": ("{{", "}}", "{input}", "{question}", "template:"),
}


def leading_label(text: str) -> str | None:
    """The label a text starts with, as in ``CONTEXT: ...``."""
    found = LABEL_LINE.match(text.lstrip())
    return LEADING_LABELS[found.group(1)] if found else None


def trusted_label(claimed: str, role_label: str) -> str:
    """The label an author claims, if it may claim it; otherwise the label of its role.

    System and developer messages come from the application and may use any label. A user, a tool or the assistant may
    mark quoted text (``CONTEXT:``, ``CODE:``) but cannot claim another role.
    """
    return claimed if role_label == "system" or claimed in QUOTABLE_LABELS else role_label


def guess_label(text: str) -> str:
    """The label of an unlabelled text."""
    may = _possible_labels(text) if text.isascii() else _RULES.keys()
    for label, rule in _RULES.items():
        if label in may and rule.search(text):
            return label
    return "retrieved_context" if len(text.split()) > LONG_TEXT_WORDS else "other"


def _possible_labels(text: str) -> set[str]:
    """The labels whose rule can match an ASCII text: a search for words is much faster than one for the rule."""
    lower = text.lower()
    return {label for label, words in _WORDS.items() if any(word in lower for word in words)}
