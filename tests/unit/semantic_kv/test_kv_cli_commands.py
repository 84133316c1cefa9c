"""The command line: help with examples, errors in one line, and small runs from end to end."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import wait_until

from semantic_kv.cli.folders import new_folder
from semantic_kv.cli.main import COMMAND_MODULES, main, parser
from semantic_kv.shipped import EXAMPLE_TRACE, EXPERIMENTS, experiment_names
from sembase.trace.load import load_trace
from sembase.values import capacity

CONFIG = """\
experiment: tiny
description: a tiny experiment
source: {workload: low_memory_rag_stress, sessions: 4, requests_per_session: 3}
seeds: [1, 2]
unit: tokens
capacities: [1200]
policies: [lru, lru+not_user_when_full]
bounds: false
"""
MOONCAKE = "".join(
    json.dumps({"timestamp": i, "input_length": 1024, "output_length": 1, "hash_ids": [i % 7, 100 + i % 7]}) + "\n"
    for i in range(200)
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "configs" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text(MOONCAKE, encoding="utf-8")
    return path


@pytest.mark.parametrize("module", COMMAND_MODULES, ids=lambda module: module.NAME)
def test_every_command_has_help_with_an_example(module: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([module.NAME, "--help"])  # type: ignore[attr-defined]
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"semantic-kv {module.NAME}" in shown  # type: ignore[attr-defined]
    assert "examples:" in shown
    assert "exit codes:" in shown


def test_the_promised_commands_are_there() -> None:
    names = [module.NAME for module in COMMAND_MODULES]
    assert names == ["run", "run-all", "replay", "collect", "calibrate", "mrc", "serve"]


@pytest.mark.parametrize("module", COMMAND_MODULES, ids=lambda module: module.NAME)
def test_examples_of_the_help_are_accepted_by_the_parser(
    module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example that begins with the program; the files they name are made first."""
    (tmp_path / "repository" / "configs" / "experiments").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    lines = [line.strip() for line in module.EXAMPLES.splitlines()]  # type: ignore[attr-defined]
    assert lines
    for line in lines:
        program, area, *words = line.split()
        assert (program, area) == ("kvmend", "simulate")
        for word in words[1:]:
            if word.endswith((".yaml", ".jsonl", ".gz", ".json", ".txt")):
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).touch()
            elif word.startswith("../"):
                Path(word).mkdir(parents=True, exist_ok=True)
        parser().parse_args(words)


def test_run_writes_its_folder_and_says_who_won(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--config", str(config), "--output-dir", str(tmp_path / "out"), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "modelled" in shown.out
    (folder,) = (tmp_path / "out").glob("*_tiny")
    assert shown.out.rstrip().endswith(str(folder))
    assert {"results.json", "metrics.csv", "summary.md", "report.html"} <= {path.name for path in folder.iterdir()}
    assert not shown.err


def test_run_all_writes_the_aggregate(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = CONFIG.replace("tiny", "recorded").replace(
        "{workload: low_memory_rag_stress, sessions: 4, requests_per_session: 3}", "{path: none.jsonl}"
    )
    (config.parent / "recorded.yaml").write_text(recorded, encoding="utf-8")
    out = tmp_path / "out"
    assert main(["run-all", "--config-dir", str(config.parent), "--output-dir", str(out), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "skipped recorded: trace none.jsonl not found; set --traces DIR" in shown.err
    assert str(out / "report.html") in shown.out.splitlines()[-1]
    with (out / "aggregate_summary.csv").open(newline="") as stream:
        assert [row["experiment"] for row in csv.DictReader(stream)] == ["tiny", "tiny"]
    assert (out / "aggregate_summary.md").is_file()
    assert (out / "report.html").is_file()


def test_a_wrong_value_is_one_line_that_says_where_to_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["replay", "--trace", "none.jsonl", "--cache-blocks", "5"], "argument --trace: there is no file 'none.jsonl'"),
        (["calibrate", "--trace", str(tmp_path)], f"argument --trace: {tmp_path}: the folder contains no trace files"),
        (["calibrate", "--trace", "/dev/null/x"], "argument --trace: "),
        (["run"], "the following arguments are required: --config"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        stderr = capsys.readouterr().err
        assert ended.value.code == 2
        assert stderr.startswith(f"semantic-kv {words[0]}: error: {message}")
        assert stderr.endswith(f"(see semantic-kv {words[0]} --help)\n")
        assert stderr.count("\n") == 1


def test_a_file_without_the_right_to_read_is_reported_with_its_flag(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(SystemExit):
        main(["calibrate", "--trace", str(trace)])
    assert f"error: argument --trace: '{trace}': permission denied (see" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_reported_with_its_flag(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    code = main(["run", "--config", str(config), "--output-dir", str(tmp_path / "file" / "out"), "--quiet"])
    stderr = capsys.readouterr().err
    assert code in (2, 3)
    assert "--output-dir" in stderr
    assert "Errno" not in stderr
    assert stderr.count("\n") == 1


def test_replay_writes_the_promised_files(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["replay", "--trace", str(trace), "--cache-blocks", "8", "--policies", "lru", "lru+second_use"]
    assert main([*words, "--output-dir", str(out), "--models", "prefix_tree", "--quiet"]) == 0
    assert "not calibrated" in capsys.readouterr().out
    (folder,) = out.glob("*_trace_replay")
    names = {path.name for path in folder.iterdir()}
    assert {"replay_results.json", "replay_metrics.csv", "replay_summary.md", "report.html"} <= names
    plots = ("replay_policy_avg_ttft", "replay_tokens_saved", "replay_hit_rate", "observed_vs_simulated_ttft")
    assert {f"{plot}.png" for plot in plots} <= names
    results = json.loads((folder / "replay_results.json").read_text())
    assert results["observed"] is None, "a trace without observed times is held against nothing"


def test_a_trace_that_repeats_a_block_within_a_request_is_replayed(tmp_path: Path) -> None:
    trace = tmp_path / "repeats.jsonl"
    records = [json.loads(line) for line in EXAMPLE_TRACE.read_text().splitlines()]
    for record in records:
        record["blocks"].append({**record["blocks"][0], "position": len(record["blocks"])})
    trace.write_text("".join(json.dumps(record) + "\n" for record in records))
    words = [
        "replay",
        "--trace",
        str(trace),
        "--cache-token-budget",
        "9k",
        "--policies",
        "lru",
        "--models",
        "block_set",
    ]
    assert main([*words, "--output-dir", str(tmp_path / "out"), "--quiet"]) == 0
    (summary,) = (tmp_path / "out").glob("*_trace_replay/replay_summary.md")
    assert "not a bound, because requests repeat a block" in summary.read_text()


def test_mrc_prints_the_curve_and_the_error_of_its_samples(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["mrc", "--trace", str(trace), "--capacities", "4", "8", "1k", "--sample-rates", "0.5", "--draws", "2"]
    assert main([*words, "--no-bounds", "--output-dir", str(out), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "miss ratio" in shown
    assert "1,000" in shown
    assert "pp" in shown
    (folder,) = out.glob("*_mrc")
    with (folder / "miss_ratio_curve.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    whole = [float(row["miss_ratio"]) for row in rows if row["sample_rate"] == "1"]
    assert whole == sorted(whole, reverse=True)
    assert whole[-1] == pytest.approx(14 / 400), "with room for all, only the first sight of a block misses"


def test_a_mock_trace_is_collected_calibrated_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served, out = tmp_path / "served.jsonl", tmp_path / "out"
    assert main(["collect", "--mock", "--requests", "120", "--output", str(served)]) == 0
    assert load_trace(served).request_count >= 120
    words = ["calibrate", "--trace", str(served), "--output-dir", str(tmp_path / "fit")]
    assert main(words) == 0
    assert "says nothing about a real server" in capsys.readouterr().out, "a mock's times are called what they are"
    fitted = tmp_path / "fit" / "calibration.json"
    words = ["replay", "--trace", str(served), "--cache-token-budget", "20k", "--policies", "lru", "--quiet"]
    assert main([*words, "--latency-model", str(fitted), "--output-dir", str(out)]) == 0
    (folder,) = out.glob("*_trace_replay")
    observed = json.loads((folder / "replay_results.json").read_text())["observed"]
    assert observed["requests"] >= 100
    assert 0 <= observed["median_absolute_percentage_error"] < 1
    made_up = "Made-up data: the trace says that its observed times come from a mock or are invented."
    assert made_up in capsys.readouterr().out
    for shown in ("replay_summary.md", "report.html"):
        assert made_up in (folder / shown).read_text(encoding="utf-8"), shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--config", "none.yaml"], "there is no file 'none.yaml'"),
        (["replay", "--trace", "none.jsonl", "--cache-blocks", "5"], "there is no file 'none.jsonl'"),
        (["mrc"], "the following arguments are required: --trace"),
        (["replay", "--trace", "{trace}", "--cache-blocks", "5x"], "such as 5000, 5k or 2M, got '5x'"),
        (["replay", "--trace", "{trace}", "--cache-blocks", "5", "--policies", "lur"], "Did you mean 'lru'?"),
        (
            ["replay", "--trace", "{trace}", "--cache-blocks", "5", "--jobs", "0"],
            "expected a whole number of at least 1, got '0'",
        ),
        (["forget"], "invalid choice: 'forget'"),
    ],
)
def test_wrong_usage_is_reported_by_argparse(
    words: list[str], message: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word.format(trace=trace) for word in words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_wrong_input_is_one_line(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG.replace("capacities", "capacitys"), encoding="utf-8")
    assert main(["run", "--config", str(config), "--output-dir", str(tmp_path / "out")]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("semantic-kv: tiny.yaml: ")
    assert stderr.count("\n") == 1


def test_a_calibration_is_not_replaced_unasked(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "calibration.json"
    kept.write_text("{}", encoding="utf-8")
    words = ["calibrate", "--trace", str(trace), "--output-dir", str(tmp_path)]
    assert main(words) == 2
    assert "already contains calibration.json; choose another folder, or pass --overwrite" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 2
    assert "--overwrite" not in capsys.readouterr().err, "this trace has no observations, which is another matter"
    assert kept.read_text(encoding="utf-8") == "{}"


def test_a_calibration_needs_observations(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--trace", str(trace), "--output-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_given_and_calibrated_coefficients_exclude_each_other(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", "--trace", str(trace), "--cache-blocks", "5", "--base-ms", "1", "--calibrate-from-trace"]
    assert main([*words, "--output-dir", str(tmp_path / "out")]) == 2
    assert "cannot be combined" in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_sigterm_leaves_nothing_half_done(jobs: str, config: Path, tmp_path: Path) -> None:
    """The traces of a study lie in the output folder while it runs; they are removed when the run is terminated."""
    seeds = f"seeds: [{', '.join(str(seed) for seed in range(400))}]"
    config.write_text(CONFIG.replace("seeds: [1, 2]", seeds), encoding="utf-8")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "semantic_kv", "run-all", "--config-dir", str(config.parent)]
    process = subprocess.Popen(
        [*command, "--output-dir", str(out), "--quiet", "--jobs", jobs], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: list((out / ".cells").rglob("*.json")) or process.poll() is not None)
        assert list(out.glob(".traces-*"))
        process.send_signal(signal.SIGTERM)
        stderr = process.communicate(timeout=300)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1].startswith("semantic-kv: interrupted; finished cells are kept")
    assert not list(out.glob(".traces-*"))


def test_a_real_server_is_recorded_by_the_proxy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--output", str(tmp_path / "served.jsonl")]) == 2
    assert "recorded by kvmend proxy" in capsys.readouterr().err


def test_calibrate_tells_the_engine_how_many_tokens_a_pass_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = tmp_path / "served.jsonl"
    assert main(["collect", "--mock", "--requests", "120", "--output", str(served)]) == 0
    words = ["calibrate", "--trace", str(served), "--pass-tokens", "512"]
    assert main([*words, "--output-dir", str(tmp_path / "fit")]) == 0
    fitted = json.loads((tmp_path / "fit" / "calibration.json").read_text())
    assert fitted["engine"]["pass_tokens"] == 512
    capsys.readouterr()


def test_capacities_may_be_written_short() -> None:
    assert [capacity(text) for text in ("5000", "5k", "2M", "1.5k")] == [5_000, 5_000, 2_000_000, 1_500]


def test_folders_of_one_second_do_not_collide(tmp_path: Path) -> None:
    made = {new_folder(tmp_path, "same") for _ in range(5)}
    assert len(made) == 5


def test_shipped_files_are_known_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of the wheel has neither configs/ nor examples/."""
    monkeypatch.chdir(tmp_path)
    options = parser().parse_args(["run", "--config", "low_memory_rag_stress"])
    assert options.config == EXPERIMENTS / "low_memory_rag_stress.yaml"
    assert parser().parse_args(["run-all"]).config_dir == EXPERIMENTS
    assert len(experiment_names()) == len(list(EXPERIMENTS.glob("*.yaml"))) > 0
    assert parser().parse_args(["mrc", "--trace", "example"]).trace == EXAMPLE_TRACE
    (tmp_path / "example").write_text("{}")
    assert parser().parse_args(["mrc", "--trace", "example"]).trace == Path("example"), "a file here is meant first"
