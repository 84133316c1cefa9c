"""The script names that were promised are there, take the promised words and write where it was promised."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = """\
experiment: tiny
description: a tiny experiment
source: {workload: low_memory_rag_stress, sessions: 4, requests_per_session: 3}
seeds: [1]
unit: tokens
capacities: [1200]
policies: [lru, adaptive_semantic+score]
"""
STUDY_FILES = {
    "results.json",
    "metrics.csv",
    "summary.md",
    "policy_comparison_avg_ttft.png",
    "policy_comparison_hit_rate.png",
    "tokens_saved_by_policy.png",
    "evictions_by_semantic_type.png",
    "adaptive_weights_over_time.png",
    "memory_utilization_over_time.png",
}
REPLAY_FILES = {
    "replay_results.json",
    "replay_metrics.csv",
    "replay_summary.md",
    "replay_policy_avg_ttft.png",
    "replay_tokens_saved.png",
    "replay_hit_rate.png",
    "observed_vs_simulated_ttft.png",
}


def run_script(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / name), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_run_experiment_and_all_of_them(tmp_path: Path) -> None:
    configs = tmp_path / "configs" / "experiments"
    configs.mkdir(parents=True)
    (configs / "tiny.yaml").write_text(CONFIG, encoding="utf-8")
    one = run_script(tmp_path, "run_experiment.py", "--config", "configs/experiments/tiny.yaml")
    assert one.returncode == 0, one.stderr
    (folder,) = (tmp_path / "outputs" / "experiments").glob("*_tiny")
    assert names_in(folder) >= STUDY_FILES
    every = run_script(tmp_path, "run_all_experiments.py")
    assert every.returncode == 0, every.stderr
    assert {"aggregate_summary.csv", "aggregate_summary.md"} <= names_in(tmp_path / "outputs" / "experiments")


def test_a_mock_trace_is_collected_and_replayed(tmp_path: Path) -> None:
    collected = run_script(tmp_path, "collect_mock_trace.py", "--requests", "40", "--output-name", "mock_trace")
    assert collected.returncode == 0, collected.stderr
    (trace,) = (tmp_path / "outputs" / "live_traces").glob("*_mock_trace.jsonl")
    assert str(trace.relative_to(tmp_path)) in collected.stdout
    words = ["--trace", str(trace.relative_to(tmp_path)), "--cache-token-budget", "10000"]
    replayed = run_script(
        tmp_path, "replay_trace.py", *words, "--policies", "lru", "adaptive_semantic", "static_semantic"
    )
    assert replayed.returncode == 0, replayed.stderr
    (folder,) = (tmp_path / "outputs" / "traces").glob("*_trace_replay")
    assert names_in(folder) >= REPLAY_FILES


def test_a_trace_is_replayed_with_a_model_fitted_to_it(tmp_path: Path) -> None:
    trace = str(ROOT / "examples" / "traces" / "rag_serving_trace.jsonl")
    words = ["--trace", trace, "--calibrate-from-trace", "--cache-token-budget", "1500", "--policies", "lru"]
    replayed = run_script(tmp_path, "replay_trace.py", *words)
    assert replayed.returncode == 0, replayed.stderr
    (folder,) = (tmp_path / "outputs" / "traces").glob("*_trace_replay")
    results = json.loads((folder / "replay_results.json").read_text(encoding="utf-8"))
    assert results["observed"]["requests"] > 0


def test_check_project_says_what_it_looked_at(tmp_path: Path) -> None:
    checked = run_script(tmp_path, "check_project.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for word in ("packages", "experiments", "policies", "service"):
        assert f"ok  {word}" in checked.stdout


@pytest.mark.parametrize(
    "name", ["run_experiment.py", "run_all_experiments.py", "replay_trace.py", "collect_mock_trace.py"]
)
def test_a_wrong_word_is_one_line_and_code_2(name: str, tmp_path: Path) -> None:
    wrong = run_script(tmp_path, name, "--no-such-option")
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_the_service_is_at_the_documented_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("starlette.testclient")
    monkeypatch.syspath_prepend(str(ROOT))
    from apps.api.main import app

    asked = {"request_id": "req_001", "messages": [{"role": "user", "content": "CONTEXT: a.\n\nUSER: b."}]}
    with testing.TestClient(app) as client:
        assert client.get("/health").json()["status"] == "ok"
        assert client.post("/v1/simulate/request", json={**asked, "session_id": "s"}).status_code == 200
