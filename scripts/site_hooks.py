"""Hooks of the documentation site.

A link that leaves docs/ opens the file on GitHub; the site does not contain it and shows its path instead. The page of
decisions lists the pages of its folder; a search shows decisions last.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    path: str = page.file.src_uri
    if path.startswith("adr/"):
        page.meta["search"] = {"boost": 0.3}  # after pages that say what to do
    if path == "adr/index.md":
        markdown += "".join(f"\n- [{title}]({name})" for name, title in decisions())
    return _LINK.sub(lambda found: _on_the_site(found, posixpath.dirname(path)), markdown)


def decisions() -> list[tuple[str, str]]:
    pages = sorted((DOCS / "adr").glob("[0-9]*.md"))
    return [(page.name, page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")) for page in pages]


def _on_the_site(found: re.Match[str], folder: str) -> str:
    words, target = found.groups()
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    if path.startswith("docs/"):
        return found.group()
    return words if path in words else f"{words} (`{path}`)"
