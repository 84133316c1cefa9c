"""The page that names every folder names exactly the folders there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_folder_is_named_and_every_name_is_a_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(src/[^`]+)` \|", page, re.MULTILINE))
    packages = {path.parent for path in (ROOT / "src").glob("*/*/**/*.py")}
    present = {path.relative_to(ROOT).as_posix() for path in packages if path.name != "__pycache__"}
    assert named == present


def test_every_path_a_page_names_exists() -> None:
    """Files in the life of a request are named relative to the folder its section opens with."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths: list[Path] = []
    for section in page.split("\n## "):
        opened = re.search(r"All files are in `(src/[^`]+)`", section)
        if opened:
            folder = ROOT / opened.group(1)
            for cell in re.findall(r"^\| \d+ \|.*\| ([^|]+) \|$", section, re.MULTILINE):
                names = re.findall(r"`([^`]+)`", cell)
                paths += [ROOT / name if name.startswith("src/") else folder / name for name in names]
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths += [ROOT / name for name in re.findall(r"`(src/[^`]+)`", contributing)]
    assert len(paths) > 40
    assert [str(path.relative_to(ROOT)) for path in paths if not path.exists()] == []
