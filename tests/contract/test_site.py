"""The documentation site builds strictly: every page is in the navigation, every link and anchor leads somewhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed; run: make setup")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stderr[-4000:]
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "pictures/idea.svg" in start
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000
    for page in tmp_path.rglob("*.html"):
        assert "fonts.googleapis" not in page.read_text(encoding="utf-8"), page
    assert "0001-anchors" in (tmp_path / "adr" / "index.html").read_text(encoding="utf-8")
