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
