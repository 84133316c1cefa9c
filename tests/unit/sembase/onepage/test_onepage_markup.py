"""Text comes back as it went in; a page makes no requests, and its content policy forbids them."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from sembase.onepage.chart import DataTable
from sembase.onepage.markup import Safe, escape, tag
from sembase.onepage.page import document, framed
from sembase.onepage.section import Section, card, missing, table, tile


class Texts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Cn"))))
def test_any_text_comes_back_as_text(text: str) -> None:
    read = Texts(tag("p", text, title=text))
    assert read.tags == ["p"]
    assert read.text == text
    assert read.attributes == {"title": text}


@given(st.text())
def test_nothing_unshowable_or_unencodable_gets_out(text: str) -> None:
    shown = escape(text)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)
    assert "<" not in shown
    assert '"' not in shown


def test_what_is_markup_already_is_not_escaped_twice() -> None:
    assert tag("b", tag("i", "&")) == "<b><i>&amp;</i></b>"
    assert tag("p", ["a", [Safe("<br>"), None], "<"], hidden=True, title=None, class_="c") == (
        '<p hidden class="c">a<br>&lt;</p>'
    )


def test_a_page_allows_its_own_style_and_nothing_else() -> None:
    section = Section("k", "A title", "", (card("c", "text"),))
    body = framed("e", "t", [[section.link("p-")]], [section.render("p-")], "f")
    page = document("<t>", body, "p { margin: 0; }", "kit 1")
    digest = base64.b64encode(hashlib.sha256(b"p { margin: 0; }").digest()).decode()
    assert f"default-src &#x27;none&#x27;; style-src &#x27;sha256-{digest}&#x27;" in page
    assert "<title>&lt;t&gt;</title>" in page
    assert '<nav aria-label="sections"><p><a href="#p-k">A title</a></p></nav>' in page
    assert '<section id="p-k">' in page


def test_what_is_absent_looks_absent_and_rows_keep_their_kind() -> None:
    data = DataTable(("a", "b"), (("x", "not measured"), ("y", "2")))
    drawn = table(data, kind="k", row_kinds=["best", ""])
    assert '<table class="k">' in drawn
    assert '<tr class="best"><td>x</td><td class="n absent">not measured</td></tr><tr><td>y</td>' in drawn
    assert 'class="figure absent"' in tile("t", "not measured", "")
    assert "<strong>Not measured.</strong> why" in missing("t", "why")
    assert "<strong>Nothing.</strong> why" in missing("t", "why", "Nothing")
