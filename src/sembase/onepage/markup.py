"""HTML and SVG by construction: every string is escaped unless it was made here, so no template engine is needed.

Names, answers of models and log lines are hostile input; nothing else reaches a page than through ``tag``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Final

# Controls no document may hold, and those that reorder what a reader sees (bidirectional overrides and isolates).
_UNSHOWABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_VOID: Final = frozenset({"meta", "br", "hr", "col"})


class Safe(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Iterable["Content"] | None
Attribute = str | int | float | bool | None


def escape(text: str) -> Safe:
    if isinstance(text, Safe):
        return text
    visible = _UNSHOWABLE.sub("\ufffd", text.encode("utf-8", "replace").decode())
    return Safe(html.escape(visible, quote=True))


def tag(name: str, /, *children: Content, **attributes: Attribute) -> Safe:
    """``class_`` is ``class``, ``aria_label`` is ``aria-label``; None and False leave an attribute out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Safe(f"<{name}{written}>")
    return Safe(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Content]) -> Safe:
    return Safe("".join(_inner(child) for child in children))


def _inner(child: Content) -> str:
    if child is None:
        return ""
    return escape(child) if isinstance(child, str) else join(child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
