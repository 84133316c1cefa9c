"""Figures of the documentation are traced to commands: what a command is expected to print is what its page says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| \[(?P<figure>[^\]]+)\]\((?P<page>[^)#]+)[^)]*\)[^|]* \| (?P<command>[^|]+) \| [^|]+ \| [^|]+ "
    r"\| (?P<expected>[^|]+) \|$",
    re.MULTILINE,
)
ROWS = [row.groupdict() for row in ROW.finditer((DOCS / "reproduce.md").read_text(encoding="utf-8"))]
COMMAND = re.compile(r"`((?:make|python -m|kvmend) [^`]+)`")
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?!\w*K)")
SECTIONS = re.findall(
    r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", (DOCS / "benchmarks.md").read_text(encoding="utf-8"), re.S | re.M
)


def exists(command: str) -> bool:
    program, name = re.split(r" (?:-m )?", command.replace("python -m", "python"))[:2]
    if program == "make":
        return re.search(rf"^{re.escape(name)}:", MAKEFILE, re.MULTILINE) is not None
    return program == "kvmend" or importlib.util.find_spec(name) is not None


def forms(number: str) -> set[str]:
    """A percentage of one page may be a fraction on the other, seconds may be milliseconds."""
    value = float(number.replace(",", ""))
    fraction = {f"{value / 100:.3f}", f"{value / 100:.4f}", f"{value * 100:g}"}
    return {number, *fraction, f"{value:,.0f}" if value == int(value) else number}


def is_on(number: str, text: str) -> bool:
    if any(re.search(rf"(?<![\d.]){re.escape(form)}(?![\d])", text) for form in forms(number)):
        return True
    seconds = float(number.replace(",", ""))
    near = {round(float(found.replace(",", "")) / 1000, 1) for found in re.findall(r"(?<![\d.])[\d,]*\d(?= ms)", text)}
    return seconds in near


def test_the_table_is_read_whole() -> None:
    page = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    table = page.split("## Figure by figure")[1]
    assert len(ROWS) == len(re.findall(r"^\| \[", table, re.MULTILINE)) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["figure"])
def test_what_a_command_is_expected_to_print_is_what_its_page_says(row: dict[str, str]) -> None:
    commands = COMMAND.findall(row["command"])
    assert commands, row
    assert all(map(exists, commands)), commands
    text = (DOCS / row["page"]).read_text(encoding="utf-8")
    if row["page"] == "guides/simulator.md":  # two pages share the row
        text += (DOCS / "guides" / "policies.md").read_text(encoding="utf-8")
    absent = [number for number in NUMBER.findall(row["expected"]) if not is_on(number, text)]
    assert not absent, f"{row['page']} does not have {absent}"


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_every_section_of_figures_names_its_command(title: str, text: str) -> None:
    commands = COMMAND.findall(text)
    assert commands, title
    assert all(map(exists, commands)), commands
