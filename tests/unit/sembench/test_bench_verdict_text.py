"""The verdict of ``assert-result-gates``: text for people on a terminal, JSON for scripts, a file on request."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sembench.cli.main import main
from sembench.console.verdict import verdict_text


def gate(metric: str, wanted: str, value: float | None, *, passed: bool, **basis: object) -> dict[str, object]:
    return {"gate": metric, "metric": metric, "wanted": wanted, "value": value, "passed": passed, **basis}


MET = gate("quality_pass_rate", ">= 0.5", 0.75, passed=True, numerator=9, denominator=12, n=12)
MISSED = gate("blended_ttft_speedup_median", ">= 1.5", 1.2, passed=False, ci95=[1.0, 1.4], n=12)
UNMEASURED = gate("semantic_placement_rate_by_request", ">= 0.1", None, passed=True)


def report(*gates: dict[str, object], failures: tuple[str, ...] = ()) -> dict[str, object]:
    return {"passed": not failures, "failures": list(failures), "checked": ["rows"], "gates": list(gates)}


def test_failures_come_first_with_wanted_found_and_basis() -> None:
    text = verdict_text(report(MET, MISSED, failures=("min_blended_ttft_speedup: is 1.2, wanted >= 1.5",)))
    lines = text.splitlines()
    assert lines[0] == "FAILED: one check failed"
    first = next(line for line in lines if line.startswith("FAIL "))
    assert ">= 1.5" in first
    assert text.index("FAIL  ") < text.index("ok    ")
    assert "9 / 12, n = 12" in " ".join(text.split())
    assert "- min_blended_ttft_speedup: is 1.2, wanted >= 1.5" in lines


def test_what_passed_without_a_measurement_is_not_called_met() -> None:
    text = verdict_text(report(MET, UNMEASURED))
    plain = " ".join(text.split())
    assert plain.startswith("PASSED: 1 gate met, every consistency check held; 1 accepted without a measurement")
    assert "not measured" in plain


@pytest.mark.parametrize("columns", [60, 80])
def test_every_line_fits(columns: int) -> None:
    wide = gate("reused_quality_pass_rate", "between 0.123456789 and 0.987654321 inclusive", 1e-9, passed=True, n=10**9)
    long = "min_something: " + "a reason with many words " * 12
    text = verdict_text(report(MET, wide, MISSED, UNMEASURED, failures=(long, long)), columns)
    assert max(map(len, text.splitlines())) <= columns


@pytest.fixture
def judged(tmp_path: Path) -> list[str]:
    manifest, result = tmp_path / "m.jsonl", tmp_path / "r.json"
    assert main(["build", "--profile", "fixture", "--output", str(manifest), "--transforms", "exact_repeat"]) == 0
    assert main(["run-offline", "--manifest", str(manifest), "--output", str(result), "--max-items", "1"]) == 0
    return ["assert-result-gates", "--result", str(result)]


def test_a_pipe_gets_json_a_terminal_text_and_a_file_on_request(
    judged: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert main(judged) == 0
    assert json.loads(piped := capsys.readouterr().out)["passed"] is True
    output = tmp_path / "verdict.json"
    assert main([*judged, "--output", str(output)]) == 0
    assert capsys.readouterr().out.startswith("PASSED")
    assert output.read_text() == piped
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(judged) == 0
    assert capsys.readouterr().out.startswith("PASSED")
    assert main([*judged, "--json"]) == 0
    assert capsys.readouterr().out == piped
    assert main([*judged, "--min-quality-pass-rate", "0.5"]) == 1
    assert capsys.readouterr().out.startswith("FAILED: one check failed")
