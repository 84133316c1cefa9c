"""The first command a reader runs: what the pages quote of it is what it prints, and it shows that kvmend can help."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guides" / "estimate.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorials" / "log-to-production.md").read_text(encoding="utf-8")
(TRY_IT,) = re.findall(r"```bash\n(python examples/make_log\.py.*?)```", README, re.DOTALL)
QUOTED = re.compile(r"```text\n(.*?)```", re.DOTALL)
SHARE = re.compile(r"\d+\.\d %")


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, *(["-m", *words] if words[0] == "kvmend" else words[1:])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    """What the commands of README's first block print."""
    return "".join(run(folder, *shlex.split(line, comments=True)) for line in TRY_IT.splitlines())


@pytest.mark.parametrize("page", [pytest.param(README, id="README"), pytest.param(TUTORIAL, id="tutorial")])
def test_quoted_output_is_printed(page: str, folder: Path, printed: str) -> None:
    """In this order; a line of three dots stands for what is left out."""
    printed += run(folder, "kvmend", "bench", "build", "--from-trace", "requests.jsonl", "--output", "workload.jsonl")
    quoted = [line for block in QUOTED.findall(page) for line in block.splitlines() if line.strip() != "..."]
    assert len(quoted) >= 6
    rest = iter(printed.splitlines())
    for line in quoted:
        assert line in rest, f"not printed here: {line}"


def test_the_sample_shows_savings_causes_and_limits(printed: str) -> None:
    served = re.search(r"served by default gates +([\d.]+) %", printed)
    assert served is not None
    assert float(served[1]) > 50.0
    for shown in (
        "date or id changed",
        "tools added or removed",
        "new instruction, old document",
        "other document order",
        "too few inexact",
        "context risk",
        "If you cannot change them: kvmend saves",
    ):
        assert shown in " ".join(printed.split()), shown


def test_page_and_terminal_say_the_same(folder: Path, printed: str) -> None:
    page = unescape(re.sub("<[^>]+>", " ", (folder / "estimate.html").read_text(encoding="utf-8")))
    verdict = printed[printed.index("VERDICT") :].partition("Next, on")[0]
    for reason in re.split(r"\n- ", verdict)[1:]:
        assert " ".join(reason.split()) in " ".join(page.split())


def test_captions_quote_the_figures_of_the_page(printed: str) -> None:
    """The caption of the picture, and the paragraph of the tutorial that sums up the sample."""
    (caption,) = re.findall(r"^\*(The page of the 200 .*?)\*$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(quoted := SHARE.findall(caption)) >= 3
    assert set(quoted) <= set(SHARE.findall(printed))
    assert set(SHARE.findall(TUTORIAL)) <= set(SHARE.findall(printed))


def test_the_sample_is_the_same_in_every_run(folder: Path, printed: str) -> None:
    run(folder, "python", "examples/make_log.py", "again.jsonl")
    assert (folder / "again.jsonl").read_bytes() == (folder / "requests.jsonl").read_bytes()
    assert len((folder / "again.jsonl").read_bytes()) < 10_000_000
    assert {*json.loads((folder / "again.jsonl").read_text().partition("\n")[0])} >= {"timestamp", "model", "messages"}


def test_help_writes_no_file(tmp_path: Path) -> None:
    assert "usage:" in run(tmp_path, "python", str(ROOT / "examples" / "make_log.py"), "--help")
    assert not list(tmp_path.iterdir())
