"""The verdict of a run: kept in its folder, printed where a gate failed, and never taken from an earlier run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.e2e import steps

from sembench.cli.main import main


def test_the_verdict_is_kept_and_a_failed_gate_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, result = tmp_path / "manifest.jsonl", tmp_path / "result.json"
    assert main(["build", "--profile", "fixture", "--output", str(manifest), "--transforms", "exact_repeat"]) == 0
    assert main(["run-offline", "--manifest", str(manifest), "--output", str(result)]) == 0
    assert steps.judge(tmp_path, manifest, ())
    assert json.loads((tmp_path / "verdict.json").read_text())["passed"] is True
    capsys.readouterr()
    assert not steps.judge(tmp_path, manifest, ("--max-answer-flips-beyond-floor", "0"))
    assert json.loads((tmp_path / "verdict.json").read_text())["passed"] is False
    assert "gate: max_answer_flips_beyond_floor" in "".join(capsys.readouterr())


def test_a_result_that_cannot_be_read_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").touch()
    (tmp_path / "result.json").write_text("{")
    (tmp_path / "verdict.json").write_text('{"failures": []}')
    with pytest.raises(SystemExit, match=r"assert-result-gates gave no verdict: .*result\.json"):
        steps.judge(tmp_path, tmp_path / "manifest.jsonl", ())
    assert not (tmp_path / "verdict.json").exists()
