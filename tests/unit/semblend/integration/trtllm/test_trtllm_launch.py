from __future__ import annotations

import json
import shlex
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from semblend.integration.trtllm import connector, launch
from semblend.integration.trtllm.options import WHERE, TrtllmOptions, parse_options


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "semblend.integration.trtllm.launch", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_help_works_without_the_engine() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "--semblend-options" in done.stdout
    assert "Experimental" in done.stdout
    assert done.stdout.endswith(f"example:\n  {launch.COMMAND_EXAMPLE}\n")


def test_the_example_of_the_help_is_a_command_line_it_takes() -> None:
    ours, rest = launch.parse(shlex.split(launch.COMMAND_EXAMPLE.removeprefix(launch.PROGRAM)))
    assert parse_options(ours.semblend_options).audit == Path("audit.jsonl")
    assert rest[0] == "Qwen/Qwen2.5-0.5B-Instruct"


def test_without_the_engine_it_says_what_to_install() -> None:
    done = run("some/model", "--port", "8000")
    assert done.returncode == ExitCode.ENVIRONMENT
    assert len(done.stderr.splitlines()) == 1
    assert "pip install tensorrt_llm" in done.stderr


def test_the_printed_configuration_names_classes_that_exist() -> None:
    done = run("--semblend-print-config")
    config = json.loads(done.stdout)["kv_connector_config"]
    assert config["connector_module"] == connector.__name__
    for key in ("connector_scheduler_class", "connector_worker_class"):
        assert isinstance(getattr(connector, config[key]), type)


def test_wrong_options_are_refused_before_the_engine_is_looked_for() -> None:
    done = run("--semblend-options", '{"audits": "a.jsonl"}')
    assert done.returncode == ExitCode.USAGE
    assert "the nearest is 'audit'" in done.stderr


class Served:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.words: list[str] = []
        self.config: Any = None
        serve = types.ModuleType("tensorrt_llm.commands.serve")
        serve.main = self._serve  # type: ignore[attr-defined]
        for name in ("tensorrt_llm", "tensorrt_llm.commands"):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        patch.setitem(sys.modules, "tensorrt_llm.commands.serve", serve)
        patch.setattr(sys, "argv", ["semblend-trtllm"])
        patch.setenv(WHERE, "")

    def _serve(self) -> None:
        self.words = sys.argv[1:]
        if "--extra_llm_api_options" in self.words:
            file = Path(self.words[self.words.index("--extra_llm_api_options") + 1])
            self.config = json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("flag", ["--extra_llm_api_options {}", "--config {}", "--config={}"])
def test_the_users_configuration_is_kept_and_ours_put_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    served = Served(monkeypatch)
    own = tmp_path / "own.yaml"
    own.write_text("backend: pytorch\nkv_cache_config:\n  enable_partial_reuse: false\n", encoding="utf-8")
    assert launch.start(["model", "--port", "8000", *flag.format(own).split()]) == 0
    assert served.words[:3] == ["model", "--port", "8000"]
    assert served.config["backend"] == "pytorch"
    assert served.config["kv_connector_config"] == launch.CONNECTOR


def test_the_stock_server_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch)
    assert launch.start(["serve", "model", "--semblend-off"]) == 0
    assert served.words == ["serve", "model"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kv_connector_config: {connector: lmcache}", "use --semblend-off"),
        ("- a list", "mapping of options"),
        ("a: [", "own.yaml"),
    ],
)
def test_a_configuration_that_contradicts_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    Served(monkeypatch)
    own = tmp_path / "own.yaml"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=words):
        launch.start(["model", "--config", str(own)])


def test_two_configurations_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    Served(monkeypatch)
    with pytest.raises(ConfigurationError, match="two names of one flag"):
        launch.start(["model", "--config", "a", "--extra_llm_api_options=b"])


def test_options_have_defaults() -> None:
    assert parse_options("") == TrtllmOptions()
    assert parse_options('{"min_run_tokens": 96}').gates.min_run_tokens == 96


@pytest.mark.parametrize("text", ["[1]", "{", '{"index_bytes": 1}', '{"materialization": "exact_prefix"}'])
def test_options_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=WHERE):
        parse_options(text)
