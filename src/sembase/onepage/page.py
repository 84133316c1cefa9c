"""The page around the sections: no scripts and no requests, enforced by its own Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files

from sembase.onepage.markup import Content, Safe, tag


def style_of(package: str) -> str:
    """The kit's style sheet, and after it the one of ``package``: ``page.css``, with the colours of its tones."""
    sheets = (("sembase.onepage", "base.css"), (package, "page.css"))
    return "".join(files(place).joinpath(name).read_text(encoding="utf-8") for place, name in sheets)


def framed(eyebrow: str, title: str, links: Iterable[Content], main: Iterable[Content], footer: str) -> Safe:
    """``links`` are the lines of the navigation."""
    nav = tag("nav", *(tag("p", line) for line in links), aria_label="sections")
    return tag(
        "div",
        tag("header", tag("p", eyebrow, class_="eyebrow"), tag("h1", title), nav, class_="top"),
        tag("main", *main),
        tag("footer", tag("p", footer)),
        class_="page",
    )


def document(title: str, body: Safe, style: str, generator: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=generator),
        tag("title", title),
        tag("style", Safe(style)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"
