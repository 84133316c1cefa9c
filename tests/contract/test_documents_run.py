"""What the README and the examples show is executed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_of_the_readme(block: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def test_sembench_commands_of_the_readme(tmp_path: Path) -> None:
    commands = re.findall(r"^sembench .*(?:\\\n.*)*", README, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        words = command.replace("\\\n", " ").split()
        run = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert run.returncode == 0, f"{command}\n{run.stdout[-1000:]}{run.stderr[-2000:]}"


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
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} -> {target}"
