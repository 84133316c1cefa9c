"""The published descriptions: each row of docs/reference/seeds.md runs as written, or is answered in one line."""

from __future__ import annotations

import json
import logging
import re
import shlex
import subprocess
import sys
import tomllib
import types
import warnings
from dataclasses import fields
from pathlib import Path

import pytest
from tests.unit.semblend.integration.test_vllm_support import verdict

from kvmend import former
from sembase.errors import ConfigurationError
from sembase.former_modules import GONE, MOVED
from sembase.registry import load_module
from sembench.cli.main import parser as bench_parser
from semblend.integration.sglang import radix_patcher
from semblend.integration.sglang.launch import cpu_flags, engine_words, parse
from semblend.integration.sglang.provider import SemanticPrefixProvider, SemanticPrefixResult
from semblend.integration.trtllm import launch as trtllm
from semblend.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "seeds.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<answer>.+) \| `(?P<test>[^`|]+)` \|$", re.MULTILINE)

LONGBENCH = """build --profile longbench-v1
--datasets qasper multifieldqa_en hotpotqa 2wikimqa musique gov_report qmsum multi_news lcc repobench-p
--max-items-per-dataset 10
--transforms instruction_variant same_evidence_new_task rag_reorder multi_donor_composite fuzzy_edit
leading_evidence_new_task negative_control
--max-segments 4 --min-segment-chars 400 --output manifests/longbench-v1-enterprise-replay.jsonl"""
BENCH_COMMANDS = (
    LONGBENCH,
    "run-offline --manifest {file} --output results/longbench-v1-offline.json --block-size 16 "
    "--tokenizer Qwen/Qwen2.5-7B-Instruct",
    "run-live-sglang --manifest {file} --output results/longbench-v1-sglang.json --base-url http://localhost:30000 "
    "--model Qwen/Qwen2.5-7B-Instruct --max-items 20",
    "run-live-gateway --manifest {file} --output results/longbench-v1-gateway.json --gateway-url http://localhost:8080 "
    "--donor-url http://localhost:30000 --model Qwen/Qwen2.5-7B-Instruct --max-items 20",
    "summarize-engine-events --engine vllm --input {file} --output results/vllm-engine-events.json",
    "summarize-engine-events --engine trtllm --input {file} --output results/trtllm-engine-events.json",
    "summarize-engine-events --engine sglang --input {file} --output results/sglang-engine-events.json",
    "collect-k8s-engine-events --engine sglang --namespace inference --pod sglang-0 --since-time 2026-06-22T18:00:00Z "
    "--output-log results/sglang.log --output-summary results/sglang-engine-events.json",
    "assert-result-gates --result {file} --engine-summary {file} --min-quality-pass-rate 0.80 "
    "--min-backend-confirmed-block-rate 0.05 --min-materialization-events 1 --min-materialized-tokens 512 "
    "--max-negative-control-confirmed-rate 0.0 --require-materialized-reuse --require-no-engine-errors",
)
METRICS = (
    "exact_block_hit_rate semantic_candidate_block_rate semantic_eligible_block_rate backend_confirmed_block_rate "
    "semantic_eligible_lift backend_confirmed_lift semantic_placement_rate_by_request "
    "negative_control_backend_confirmed_rate"
)
THREE_KEYS = """{
"kv_connector": "SemBlendConnectorV1",
"kv_connector_module_path": "semblend.integration.vllm.connector_v1",
"kv_role": "kv_both"
}"""
VARIABLES = {
    "SEMBLEND_ENABLED": "1",
    "SEMBLEND_MIN_SIMILARITY": "0.60",
    "SEMBLEND_EMBEDDER": "minilm",
    "SEMBLEND_FUZZY_CHUNKS": "0",
    "SEMBLEND_DISCOVERY_ONLY": "0",
    "SEMBLEND_STRICT_PREFIX_BOUNDARY": "1",
    "SEMBLEND_EXACT_MATERIALIZATION_ONLY": "1",
}


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(folder), **environment}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )


# -- the page ----------------------------------------------------------------------------------------------------------


def test_every_row_names_a_test_that_exists() -> None:
    rows = list(ROW.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(rows) == PAGE.read_text(encoding="utf-8").count("\n| ") - 4, "a row that is not read"
    for row in rows:
        name, _, function = row["test"].partition("::")
        path = ROOT / name if "/" in name else Path(__file__).with_name(name)
        assert path.exists(), row["test"]
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), row["test"]


def test_pages_that_answer_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(links) >= 8
    assert [link for link in links if not (PAGE.parent / link).is_file()] == []


# -- SemBench ----------------------------------------------------------------------------------------------------------


def test_the_fixture_is_built_and_replayed_as_written(tmp_path: Path) -> None:
    built = run(tmp_path, *["-m", "sembench", "build", "--profile", "fixture", "--output", "manifests/fixture.jsonl"])
    assert built.returncode == 0, built.stderr
    replayed = run(
        tmp_path,
        *[
            "-m",
            "sembench",
            "run-offline",
            "--manifest",
            "manifests/fixture.jsonl",
            "--output",
            "results/fixture-offline.json",
        ],
        *["--block-size", "16", "--max-items", "3"],
    )
    assert replayed.returncode == 0, replayed.stderr
    assert (tmp_path / "results" / "fixture-offline.json").is_file()


@pytest.mark.parametrize("command", BENCH_COMMANDS, ids=[command.split()[0] for command in BENCH_COMMANDS])
def test_every_bench_command_line_is_accepted(command: str, tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_text("", encoding="utf-8")
    assert bench_parser().parse_args(command.format(file=file).split()).execute


def test_a_loading_script_is_answered_with_the_way_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: object, **__: object) -> None:
        raise RuntimeError("Dataset scripts are no longer supported, but found LongBench.py")

    datasets = types.ModuleType("datasets")
    datasets.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    hub = "sembench.workload.sources.hub"
    monkeypatch.setitem(sys.modules, hub, datasets)  # so that what is imported here is gone after the test
    del sys.modules[hub]
    with pytest.raises(ConfigurationError) as answered:
        load_module(hub).load_rows("THUDM/LongBench", "qasper")
    assert "hf download THUDM/LongBench --repo-type dataset" in str(answered.value)
    assert "--data-dir" in str(answered.value)


def test_a_tokenizer_by_hub_name(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    name = "Qwen/Qwen2.5-7B-Instruct"
    code = (
        "from sembase.tokenizer import open_tokenizer; "
        f"found = open_tokenizer({name!r}); print(found.name, found.count('a b'))"
    )
    home = {"HF_HOME": str(tmp_path / "hf")}
    absent = run(tmp_path, "-c", code, **home)
    assert f"run `hf download {name} tokenizer.json` once" in absent.stderr
    revision = "0" * 40
    repository = tmp_path / "hf" / "hub" / "models--Qwen--Qwen2.5-7B-Instruct"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision, encoding="utf-8")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(snapshot / "tokenizer.json"))
    cached = run(tmp_path, "-c", code, **home)
    assert cached.stdout == f"{name} 2\n", cached.stderr


def test_the_eight_metrics_have_their_names() -> None:
    page = (ROOT / "docs" / "METRICS.md").read_text(encoding="utf-8")
    assert [name for name in METRICS.split() if f"`{name}`" not in page] == []


def test_own_texts_are_a_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    passages = [" ".join(f"Sentence {number} of article {article}." for number in range(200)) for article in range(4)]
    rows = [{"context": text, "question": f"What does article {number} say?"} for number, text in enumerate(passages)]
    (folder / "samsum.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    built = run(
        tmp_path,
        *["-m", "kvmend", "bench", "build", "--profile", "jsonl", "--data-dir", "texts", "--output", "own.jsonl"],
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "own.jsonl").stat().st_size > 0


# -- SemBlend ----------------------------------------------------------------------------------------------------------


def test_the_distribution_and_its_extras() -> None:
    assert PROJECT["name"] == "kvmend"
    assert PROJECT["requires-python"] == ">=3.11"
    extras = set(PROJECT["optional-dependencies"])
    assert {"embedder", "onnx-gpu", "vllm", "sglang", "trtllm", "benchmarks", "dev"} <= extras
    assert "gpu" not in extras


def test_the_connector_with_three_keys() -> None:
    """vLLM's default policy for failed loads is ``fail``; the stock worker class loads prefix-shaped runs."""
    given = {f"transfer__{key}": value for key, value in json.loads(THREE_KEYS).items()}
    stock = verdict(**given, transfer__kv_load_failure_policy="fail", parallel__worker_cls="auto")
    assert stock.usable
    assert not stock.sparse_forward
    assert verdict(**given, transfer__kv_load_failure_policy="fail").sparse_forward


def test_the_sglang_launcher_as_written() -> None:
    words = shlex.split("--model-path Qwen/Qwen2.5-7B-Instruct --host 0.0.0.0 --port 8000")
    command = engine_words(*parse(words))
    assert command == [*words, "--radix-cache-backend", "semblend"]
    assert cpu_flags(command, has_accelerator=False) == ["--device", "cpu", "--attention-backend", "torch_native"]
    assert cpu_flags(command, has_accelerator=True) == []
    assert cpu_flags([*command, "--device", "cpu"], has_accelerator=True) == ["--attention-backend", "torch_native"]
    assert cpu_flags([*command, "--device=cuda"], has_accelerator=False) == []
    assert cpu_flags([*command, "--attention-backend=triton"], has_accelerator=False) == ["--device", "cpu"]
    assert "semblend-sglang" in former.FORMER


def test_the_patch_registers_and_says_what_selects_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = types.ModuleType("sglang")
    engine.__version__ = "0.5.23"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang", engine)
    monkeypatch.setattr(radix_patcher, "register", lambda: None)
    with caplog.at_level(logging.WARNING, logger="semblend.sglang"):
        assert radix_patcher.patch_radix_cache().backend == "semblend"
    assert 'radix_cache_backend="semblend"' in caplog.text


def test_the_launcher_of_tensorrt_llm_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        trtllm.main(["--help"])
    assert ended.value.code == 0
    assert "--semblend-options" in capsys.readouterr().out


def test_the_seven_variables_are_settings() -> None:
    """The promised defaults, given explicitly, change nothing; each other value is read."""
    assert Settings.from_environment(VARIABLES) == Settings(embedder="minilm")
    others = {"SEMBLEND_MIN_SIMILARITY": "0.9", "SEMBLEND_EMBEDDER": "jaccard"}
    for name, value in VARIABLES.items():
        other = others.get(name) or ("0" if value == "1" else "1")
        assert Settings.from_environment({name: other}) != Settings.from_environment({}), name


def test_module_paths_that_moved() -> None:
    for name, present in MOVED.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sys.modules.pop(name, None)
            assert load_module(name) is load_module(present), name
        assert f"{name} is now {present}" in [str(warning.message) for warning in seen]
    inside = load_module("semantic_kv.policies.registry")
    assert inside is load_module("semantic_kv.policy.registry"), "never loaded a second time"


def test_module_paths_that_are_gone_say_what_to_use() -> None:
    for name, instead in GONE.items():
        with pytest.raises(ModuleNotFoundError) as answered:
            load_module(name)
        assert str(answered.value) == f"No module named '{name}': {instead}"


# -- SemanticKV, SemanticPrefixProvider --------------------------------------------------------------------------------


def test_simulated_times_are_called_modelled() -> None:
    columns = load_module("semantic_kv.report.metrics_csv")
    assert "modelled_ttft_mean_ms" in columns.COLUMNS
    assert not [name for name in columns.COLUMNS if name.startswith("estimated_ttft")]


def test_the_five_stress_workloads_have_their_names() -> None:
    configs = {path.stem for path in (ROOT / "configs" / "experiments").iterdir()}
    promised = set(load_module("semantic_kv.workload").STRESS)
    assert len(promised) == 5
    assert promised <= configs


def test_the_provider_has_its_methods_and_fields() -> None:
    for method in ("on_prefix_miss", "on_request_cached", "on_init", "on_shutdown"):
        assert callable(getattr(SemanticPrefixProvider, method))
    promised = {"alternate_token_ids", "num_cached_tokens", "skip_insert", "metadata", "source_id"}
    assert {field.name for field in fields(SemanticPrefixResult)} == promised
