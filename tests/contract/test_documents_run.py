"""What README, site and examples show is executed; what cannot be is marked, and its commands and flags exist.

A block of commands on a page of ``RUN`` is run, unless the comment ``<!-- not run: reason -->`` precedes it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kvmend.front import main as kvmend

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "guides" / "sembench.md",
    *(page for folder in ("start", "tutorials", "operate") for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
BLOCK = re.compile(r"(?:<!-- not run: ([^\n]*?) -->\n)?^ *```([\w-]*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SHELL = {"", "bash", "console", "sh"}
# Areas of the one command that a former command is today; the launchers hand unknown flags on to their engine.
FORMER = {
    "semblend": [],
    "sembench": ["bench"],
    "semantic-kv": ["simulate"],
    "semgate router": ["route"],
    "semgate picker": ["pick"],
    "semgate proxy": ["proxy"],
    "semgate explain": ["explain"],
}
MODULES = {"kvmend": "kvmend", "sembench": "sembench", "semantic_kv": "semantic-kv", "semblend.cli": "semblend"}
SEVERAL = {"bench", "simulate"}  # areas with commands of their own
LAUNCHERS = {"serve"}
# Why commands of the guides are not run here. What needs none of this belongs on a page of RUN, or gets a mark.
NOT_RUN = {
    "an engine": "serve, doctor, vllm, semblend-sglang, semblend-trtllm, python -m vllm",
    "running servers": "route, proxy, pick, calibrate, bench run-live, bench run-load, bench calibrate-noise-floor, "
    "simulate serve, ask, curl, envoy",
    "files of such a run": "explain, guard, bench summarize, bench assert, bench report, bench collect, "
    "simulate collect, simulate calibrate",
    "the reader's own data": "estimate, bench build, simulate replay, simulate mrc",
    "the benchmarks' time and data": "make, python -m benchmarks, simulate run",
    "the network or another program": "pip, git, python -m scripts.engines, docker, helm, openssl, export, head, "
    "pytest, python -c",
}


def commands_of(page: Path) -> Iterator[tuple[list[str], str | None]]:
    """Words of each command in a block of commands, and why the block is not run."""
    for reason, language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language not in SHELL:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:  # a quotation over several lines: the body of a request
                continue
            if words and re.fullmatch(r"[a-z][a-z0-9-]*", words[0]):
                yield words, reason or None


def area_of(words: list[str]) -> list[str] | None:
    """The command as an area of kvmend and what follows; None for a program that is not ours."""
    if words[:2] == ["python", "-m"] and words[2] in MODULES:
        words = [MODULES[words[2]], *words[3:]]
    if words[0] == "kvmend":
        return words[1:]
    for name, area in FORMER.items():
        if words[: len(name.split())] == name.split():
            return [*area, *words[len(name.split()) :]]
    return None


@cache
def help_of(area: tuple[str, ...]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        kvmend([*area, "--help"])
    assert "usage:" in printed.getvalue(), area
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_flags_of_a_page_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words, _ in commands_of(page):
        if words[0] == "make":
            for target in (word for word in words[1:] if re.fullmatch(r"[a-z0-9-]+", word)):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), words
        elif words[0] == "python" and words[1] == "-m" and words[2].split(".")[0] in {"benchmarks", "scripts", "tests"}:
            assert importlib.util.find_spec(words[2]) is not None, words
        elif words[0] == "python" and words[1].endswith(".py"):
            assert (ROOT / words[1]).is_file(), words
        elif (area := area_of(words)) is not None:
            _check_area(area)


FORMER_COMMAND = re.compile(
    r"(?<![\w./-])(?:semgate (?:router|picker|proxy|explain)|semblend (?:estimate|doctor|explain|calibrate|guard)"
    r"|sembench (?:build|run|report|assert|summarize|collect|calibrate)"
    r"|semantic-kv (?:run|replay|mrc|collect|serve))\b"
)
# Pages about the former names, and records of past decisions.
MAY_NAME_FORMER = ("docs/adr/", "docs/reference/seeds.md")


def test_pages_and_deployment_files_show_the_present_command() -> None:
    deployed = [path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()]
    for path in (*PAGES, *deployed, ROOT / "Makefile"):
        if not path.relative_to(ROOT).as_posix().startswith(MAY_NAME_FORMER):
            assert (found := FORMER_COMMAND.search(path.read_text(encoding="utf-8"))) is None, f"{path}: {found}"


def _check_area(words: list[str]) -> None:
    ours = words[: words.index("--")] if "--" in words else words
    if not ours or ours[0] in LAUNCHERS or ours[0].startswith("-"):
        return
    depth = 2 if ours[0] in SEVERAL and len(ours) > 1 and not ours[1].startswith("-") else 1
    text = help_of(tuple(ours[:depth]))
    for flag in (word.partition("=")[0] for word in ours[depth:] if word.startswith("--")):
        assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text), f"{' '.join(words)}: no {flag}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in RUN], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_commands_of_a_guide_are_not_run_for_a_known_reason(page: Path) -> None:
    known = [command for commands in NOT_RUN.values() for command in commands.split(", ")]
    for words, reason in commands_of(page):
        command = " ".join(area_of(words) or words)
        assert reason or any(command.startswith(each) for each in known), f"{command}: why is it not run?"


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_a_first_page_run(page: Path, tmp_path: Path) -> None:
    """One page, one folder: a command finds what the one before it wrote."""
    for name in ("examples", "scripts", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    for words, reason in commands_of(page):
        if reason is not None:
            continue
        assert words[0] in {"kvmend", "python"}, (
            f"{words}: run it here, or precede its block with <!-- not run: why -->"
        )
        command = [sys.executable, *(["-m", *words] if words[0] == "kvmend" else words[1:])]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
        assert run.returncode == 0, f"{' '.join(words)}\n{run.stdout[-1000:]}{run.stderr[-2000:]}"
        assert run.stdout.strip() or run.stderr.strip(), words


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_of_the_readme(block: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def words_of(text: str) -> int:
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))


def test_the_readme_and_the_start_page_are_as_long_as_the_comparison_says() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    ((words, pictures),) = re.findall(r"^\| kvmend \| ([\d,]+) \| (\d+) \|", contributing, re.MULTILINE)
    assert words_of(README) == pytest.approx(int(words.replace(",", "")), rel=0.05)
    assert README.count("![") == int(pictures)
    (words_of_start,) = re.findall(r"start page\s+has (\d+) words and one picture", contributing)
    assert words_of(start) == pytest.approx(int(words_of_start), rel=0.05)
    assert start.count("![") == 1


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
STARTS_A_SERVER = pytest.mark.engine


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, id=path.name, marks=[STARTS_A_SERVER] if path.name.startswith("vllm_") else [])
        for path in EXAMPLES
    ],
)
def test_examples(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip()


def test_links_inside_the_repository_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} -> {target}"
