"""The commands as a user runs them, in processes of their own, and what their exit codes say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SRC = Path(__file__).parents[2] / "src"


def sembench(*arguments: str | Path, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """``prelude`` runs first in the same process: it can take packages away."""
    code = f"{prelude}\nfrom sembench.cli.main import main\nraise SystemExit(main())"
    command = [sys.executable, "-c", code] if prelude else [sys.executable, "-m", "sembench"]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small manifest and its offline result."""
    directory = tmp_path_factory.mktemp("bench")
    built = sembench(
        "build",
        "--profile",
        "fixture",
        "--max-items-per-dataset",
        "1",
        "--output",
        directory / "m.jsonl",
    )
    assert built.returncode == 0, built.stderr
    summary = json.loads(built.stdout)
    assert summary["workload_items"] == 28
    assert summary["skipped"] == {}
    ran = sembench("run-offline", "--manifest", directory / "m.jsonl", "--output", directory / "r.json")
    assert ran.returncode == 0, ran.stderr
    (directory / "stdout.txt").write_text(ran.stdout)
    (directory / "stderr.txt").write_text(ran.stderr)
    return directory


def test_tables_say_what_they_are(work: Path) -> None:
    shown = (work / "stdout.txt").read_text()
    assert "no backend has confirmed reuse" in shown
    assert "Evidence: offline" in shown
    assert "Figures that must be zero" in shown
    for transform in ("exact_repeat", "rag_reorder", "cross_tenant", "all"):
        assert any(line.split()[:1] == [transform] for line in shown.splitlines())
    assert "not a model's tokenizer" in (work / "stderr.txt").read_text()
    assert sorted(path.name for path in work.iterdir() if "partial" in path.name) == []


def test_the_fixture_passes_audit_and_gates(work: Path) -> None:
    audited = sembench("audit-manifest", "--manifest", work / "m.jsonl")
    assert audited.returncode == 0
    assert json.loads(audited.stdout)["passed"] is True
    judged = sembench("assert-result-gates", "--result", work / "r.json")
    assert judged.returncode == 0
    verdict = json.loads(judged.stdout)
    assert verdict["failures"] == []
    assert verdict["checked"] == [
        "aggregates follow from rows",
        "unverified_planned_token_rate",
        "changed_token_planned_rate",
        "negative_control_semantic_eligible_block_rate",
        "cross_tenant_planned_requests",
    ]
    assert verdict["observed"]["negative_control_backend_confirmed_rate"] is None


def test_an_offline_result_meets_no_live_gate(work: Path) -> None:
    judged = sembench("assert-result-gates", "--result", work / "r.json", "--min-backend-confirmed-block-rate", "0")
    assert judged.returncode == 1
    verdict = json.loads(judged.stdout)
    assert verdict["passed"] is False
    assert verdict["missing_metrics"] == ["backend_confirmed_block_rate"]
    allowed = sembench(
        "assert-result-gates", "--result", work / "r.json", "--min-backend-confirmed-block-rate", "0", "--allow-missing"
    )
    assert allowed.returncode == 0


def forged(work: Path, **row: Any) -> Path:
    result = json.loads((work / "r.json").read_text())
    result["requests"][0].update(row)
    path = work / "forged.json"
    path.write_text(json.dumps(result))
    return path


def test_a_forged_row_is_caught(work: Path) -> None:
    judged = sembench("assert-result-gates", "--result", forged(work, exact_hit_blocks=0))
    assert judged.returncode == 1
    assert "but the rows give" in json.loads(judged.stdout)["failures"][0]


def test_a_broken_manifest_fails_its_audit(work: Path) -> None:
    first = json.loads((work / "m.jsonl").read_text(encoding="utf-8").split("\n")[0])
    path = work / "broken.jsonl"
    path.write_text(json.dumps({**first, "donor_prompts": []}) + "\n")
    audited = sembench("audit-manifest", "--manifest", path)
    assert audited.returncode == 1
    assert [v["rule"] for v in json.loads(audited.stdout)["violations"]] == ["missing_donors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--profile", "nothing", "--output", "x"], "invalid choice"),
        (["build", "--profile", "jsonl", "--output", "x"], "pass --data-dir DIR"),
        (["build", "--profile", "fixture", "--output", "x", "--transforms", "shufle"], "unknown transform 'shufle'"),
        (
            ["build", "--profile", "fixture", "--output", "x", "--max-segments", "0"],
            "expected a whole number of at least 1",
        ),
        (["run-offline", "--manifest", "nowhere.jsonl", "--output", "x"], "there is no file 'nowhere.jsonl'"),
        (["assert-result-gates", "--result", "nowhere.json"], "there is no file 'nowhere.json'"),
        ([], "COMMAND"),
    ],
)
def test_wrong_usage_is_2_and_says_why(arguments: list[str], message: str) -> None:
    done = sembench(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_malformed_manifest_is_2_with_file_and_line(work: Path) -> None:
    path = work / "bad.jsonl"
    path.write_text('{"item_id": "a"}\n')
    for command in (["audit-manifest"], ["run-offline", "--output", str(work / "x.json")]):
        done = sembench(*command, "--manifest", path)
        assert done.returncode == 2
        assert "bad.jsonl:1: missing dataset" in done.stderr


WITHOUT_EXTRAS = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {'rich', 'tokenizers', 'datasets', 'numba', 'usearch', 'sentence_transformers',
                                      'torch', 'transformers', 'onnxruntime', 'httptools', 'resvg_py', 'psutil'}:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Refuse())
"""


def test_the_base_install_is_enough(work: Path) -> None:
    """Only numpy and rapidfuzz: build, replay, audit and gates still work, with the same figures."""
    manifest, result = work / "base.jsonl", work / "base.json"
    built = sembench(
        "build", "--profile", "fixture", "--max-items-per-dataset", "1", "--output", manifest, prelude=WITHOUT_EXTRAS
    )
    assert built.returncode == 0, built.stderr
    assert manifest.read_bytes() == (work / "m.jsonl").read_bytes()
    ran = sembench(
        "run-offline", "--manifest", manifest, "--output", result, "--max-items", "6", prelude=WITHOUT_EXTRAS
    )
    assert ran.returncode == 0, ran.stderr
    slim, full = (json.loads(path.read_text())["requests"][:6] for path in (result, work / "r.json"))
    for row in (*slim, *full):
        row["plan"]["plan_ms"] = None
    assert slim == full
    assert sembench("assert-result-gates", "--result", result, prelude=WITHOUT_EXTRAS).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run-offline", "--tokenizer", "model"], "tokenizer"),
        (["run-offline", "--semblend-embedder", "minilm"], "embedder"),
        (["build", "--profile", "longbench-v1"], "longbench"),
    ],
)
def test_a_missing_package_is_3_and_names_its_extra(work: Path, arguments: list[str], extra: str) -> None:
    files = ["--output", str(work / "never.json")]
    if arguments[0] == "run-offline":
        files += ["--manifest", str(work / "m.jsonl")]
    done = sembench(*arguments, *files, prelude=WITHOUT_EXTRAS)
    assert done.returncode == 3, done.stderr
    assert f"pip install 'kvmend[{extra}]'" in done.stderr
    assert not (work / "never.json").exists()
