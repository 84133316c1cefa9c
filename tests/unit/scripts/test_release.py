"""Releases: tag, version, changelog agree; workflows have few rights and pinned actions; changed files find tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts import release
from scripts.changed_tests import ALWAYS, covering_tests

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RIGHTS = {  # beyond reading the repository, by workflow and job
    ("release.yml", "attest"): {"id-token", "attestations"},
    ("release.yml", "publish"): {"id-token"},
    ("release.yml", "announce"): {"contents"},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "semblend").mkdir(parents=True)
    (tmp_path / "src" / "semblend" / "_version.py").write_text('__version__ = "1.2.0"\n', encoding="utf-8")
    log = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2027-01-02\n\n### Added\n- A thing.\n\n## [1.1.0]\n- Older.\n"
    (tmp_path / "CHANGELOG.md").write_text(log, encoding="utf-8")
    return tmp_path


def test_the_notes_are_the_section_of_the_version(project: Path) -> None:
    assert release.check("v1.2.0", project) == "### Added\n- A thing."


@pytest.mark.parametrize(
    ("tag", "change", "reason"),
    [
        ("v1.2.1", ("", ""), "tag v1.2.0"),
        ("1.2.0", ("", ""), "tag v1.2.0"),
        ("v1.2.0", ("- A thing.", ""), r"no entries under \[1.2.0\]"),
        ("v1.2.0", ("[Unreleased]\n", "[Unreleased]\n- Forgotten.\n"), r"still has entries under \[Unreleased\]"),
    ],
)
def test_a_release_that_does_not_agree_is_refused(
    project: Path, tag: str, change: tuple[str, str], reason: str
) -> None:
    file = project / "CHANGELOG.md"
    file.write_text(file.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(release.NotReadyError, match=reason):
        release.check(tag, project)


def test_this_project_has_a_version_that_the_citation_names() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == release.version()


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def test_actions_are_pinned_by_digest_and_named_by_version(path: Path) -> None:
    uses = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert uses
    assert [line for line in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def test_jobs_have_no_rights_but_those_they_need(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        written = {right for right, level in job.get("permissions", {}).items() if level == "write"}
        assert written == RIGHTS.get((path.name, name), set()), name
        assert "timeout-minutes" in job or job.get("needs"), name


def test_every_make_target_of_the_workflows_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for path in WORKFLOWS:
        for words in re.findall(r"run: make ([a-z -]+)", path.read_text(encoding="utf-8")):
            for target in words.split():
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_changed_files_lead_to_their_tests() -> None:
    changed = [
        "src/semblend/plan/gates.py",
        "src/semblend/settings.py",
        "tests/unit/semblend/plan/test_gates_absent.py",
        "tests/engines/vllm/test_support.py",
        "src/kvmend/front.py",
        "scripts/release.py",
    ]
    assert covering_tests(changed) == [ALWAYS, "tests/unit/kvmend", "tests/unit/scripts", "tests/unit/semblend"]
    assert covering_tests(["src/semblend/plan/gates.py"]) == [ALWAYS, "tests/unit/semblend/plan"]
    assert covering_tests([]) == [ALWAYS]


def test_the_release_is_built_by_pinned_packages() -> None:
    """`python -m build` installs the build backend with pip, which reads the constraints; they have no hashes."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    (command,) = [line for line in makefile if " -m build " in line]
    assert "PIP_CONSTRAINT=requirements/dev.txt" in command
    pins = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w-]+)==", pins, re.MULTILINE))
    assert {"hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"} <= pinned
