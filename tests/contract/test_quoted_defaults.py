"""Defaults that prose quotes are those of the code, in the three forms that this test can read without a guess.

"(`option` VALUE)", "VALUE (`option`)" (also "VALUE tokens" and "VALUE %"), and tables whose second column is "default".
To quote another value of an option, write "with `option` VALUE". ADRs tell the past, and reference pages are generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sembase.settings import rows_of
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.vllm.options import ConnectorOptions
from semgate.settings import PickerSettings, ProxySettings, RouterSettings

ROOT = Path(__file__).parents[2]
KINDS = (ConnectorOptions, SglangOptions, RouterSettings, PickerSettings, ProxySettings)
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not {"adr", "reference"} & set(path.relative_to(ROOT).parts)
]
NAME = r"`(?:--)?(?P<name>[a-z][a-z_-]+)`"
MADE = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
VALUE = r"(?P<value>\d[\d,]*(?:\.\d+)?)"
BEFORE = re.compile(rf"\({NAME} {VALUE}(?=[);,])")
AFTER = re.compile(rf"(?<![\w.]){VALUE}(?P<unit> %| (?:\w+ )?tokens)?\**\s\({NAME}\)")
ROW = re.compile(rf"^\| {NAME} \| `?(?P<value>[^|`]*)`? \|", re.MULTILINE)
TABLE = re.compile(r"^\| [^|]+ \| default \|.*\n(?:\|.*\n?)+", re.MULTILINE | re.IGNORECASE)


def defaults() -> dict[str, set[str]]:
    """By name, as text; engines may differ."""
    found: dict[str, set[str]] = {}
    for kind in KINDS:
        for row in rows_of(kind):
            found.setdefault(row.name, set()).add(plain(row.default_text()))
    return found


def plain(value: str, unit: str = "") -> str:
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return "none" if value == "null" else value.strip('"')
    return f"{number / 100 if unit == ' %' else number!r}"


def quoted(text: str) -> Iterator[tuple[str, str]]:
    text = MADE.sub("", text)
    for table in TABLE.findall(text):
        for row in ROW.finditer(table):
            yield row["name"], plain(row["value"])
    for found in (*BEFORE.finditer(text), *AFTER.finditer(text)):
        yield found["name"], plain(found["value"], found.groupdict().get("unit") or "")


def wrong(text: str, known: dict[str, set[str]]) -> list[tuple[str, str, set[str]]]:
    pairs = [(name.replace("-", "_"), value) for name, value in quoted(text)]
    return [(name, value, known[name]) for name, value in pairs if name in known and value not in known[name]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_quoted_default_is_the_default(page: Path) -> None:
    assert not wrong(page.read_text(encoding="utf-8"), defaults())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("too much differs (`max_context_share` 0.4)", ["max_context_share"]),
        ("fewer than 256 tokens (`min_inexact_tokens`)", ["min_inexact_tokens"]),
        ("at most **5 %** (`max_answer_loss`)", ["max_answer_loss"]),
        ("| setting | default |\n|---|---|\n| `guard_ceiling_kl` | 0.01 |\n", ["guard_ceiling_kl"]),
        ("with `min_inexact_tokens` 256; (`min_inexact_tokens` 768), 2 % (`max_answer_loss`), 5 tokens (`none`)", []),
    ],
)
def test_the_forms_are_read(text: str, expected: list[str]) -> None:
    assert [name for name, _, _ in wrong(text, defaults())] == expected


def test_the_pages_use_the_forms() -> None:
    known = defaults()
    names = {name for page in PAGES for name, _ in quoted(page.read_text(encoding="utf-8"))}
    assert {"min_inexact_tokens", "max_context_share", "max_answer_loss", "guard_ceiling_kl"} <= names & set(known)
