"""The eight kinds of content a block can carry; everywhere else a label is its index into `LABELS`."""

from __future__ import annotations

from typing import Final

from sembase.errors import ContractError

LABELS: Final[tuple[str, ...]] = (
    "system",
    "template",
    "retrieved_context",
    "tool_output",
    "code",
    "assistant",
    "user",
    "other",
)
OTHER: Final = LABELS.index("other")
_INDEX: Final = {label: index for index, label in enumerate(LABELS)}


def label_index(label: str) -> int:
    """The index of a label; an unknown label is an error that lists the known ones."""
    try:
        return _INDEX[label]
    except KeyError:
        raise ContractError(f"unknown semantic type '{label}'; known: {', '.join(LABELS)}") from None
