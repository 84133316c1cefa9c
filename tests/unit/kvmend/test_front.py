"""``kvmend``: every area reaches its main under its own name; former names work and tell people the present one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvmend import former, front, serve
from kvmend.former import FORMER
from kvmend.front import AREAS
from sembase.errors import ConfigurationError, MissingDependencyError, install_command, install_elsewhere_command

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def help_of(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        front.main([*words, "--help"])
    return text.getvalue()


@pytest.mark.parametrize("area", [area.name for area in AREAS])
def test_the_help_of_an_area_names_what_was_typed(area: str) -> None:
    assert f"usage: kvmend {area} " in help_of(area)


def test_commands_of_an_area_name_it_too() -> None:
    assert help_of("bench", "build").startswith("usage: kvmend bench build ")
    assert help_of("simulate", "replay").startswith("usage: kvmend simulate replay ")


def test_help_imports_no_area(tmp_path: Path) -> None:
    """Fast: nothing but the table, whatever is installed."""
    code = (
        "import sys; from kvmend.front import main; main(['--help']); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'semblend', 'sembench', 'semantic_kv', 'semgate', 'semestimate', 'numpy', 'numba'}))"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"
    for area in AREAS:
        assert f"  {area.name} " in shown.stdout


def test_a_misspelt_area_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        front.main(["estimat", "log.jsonl"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown == "kvmend: error: unknown area 'estimat'. Did you mean 'estimate'? (see kvmend --help)\n"


def test_without_an_area_the_help_is_shown_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main([]) == 2
    assert "areas:" in capsys.readouterr().err


def test_errors_name_the_present_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert front.main(["explain", "id", "--events", str(tmp_path / "none.jsonl")]) == 3
    assert capsys.readouterr().err.startswith("kvmend: --events: ")
    assert front.main(["explain", "id", "--log-dir", str(tmp_path / "none")]) == 2
    assert "set --log-dir" in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--engine", "vllm")])
def test_serve_without_a_model_is_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["serve", *words]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("usage: kvmend serve ")
    assert shown.err.endswith("kvmend serve: error: name a model\n")
    assert shown.out == ""


def test_serve_takes_the_installed_engine_and_asks_when_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(*names: str) -> None:
        monkeypatch.setattr(serve, "find_spec", lambda name: object() if name in names else None)

    installed("tensorrt_llm")
    assert serve.only_installed() == "trtllm"
    for names in ((), ("vllm", "sglang")):
        installed(*names)
        with pytest.raises(ConfigurationError, match=r"name one with --engine vllm\|sglang\|trtllm"):
            serve.only_installed()


def test_an_engine_without_a_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        front.main(["serve", "M", "--engine"])
    assert "--engine needs a value" in capsys.readouterr().err


def test_an_unknown_engine_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        front.main(["serve", "--engine", "ollama", "M"])
    assert "unknown engine 'ollama'; known: vllm, sglang, trtllm" in capsys.readouterr().err


def test_scripts_are_the_front_and_the_former_names() -> None:
    scripts = dict(PROJECT["scripts"])
    assert scripts.pop("kvmend") == "kvmend.front:main"
    assert set(scripts) == set(FORMER)
    assert set(scripts.values()) == {"kvmend.former:main"}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    words = ["bin/sembench", "--version"]
    monkeypatch.setattr(sys, "argv", words)
    return words


@pytest.mark.parametrize(("terminal", "word", "noted"), [(True, "", 1), (False, "", 0), (True, "--json", 0)])
def test_a_former_name_works_and_tells_people_only(
    typed: list[str],
    terminal: bool,
    word: str,
    noted: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    typed += [word] if word else []
    with pytest.raises(SystemExit):
        former.main()
    shown = capsys.readouterr()
    assert shown.out.startswith("sembench ")
    assert shown.err == "sembench is now `kvmend bench`; both names work\n" * noted


@pytest.mark.parametrize(
    ("record", "command"),
    [
        ('{"url": "file:///src/my%20clone", "dir_info": {"editable": true}}', "pip install -e '/src/my clone'"),
        ('{"url": "file:///src/wheel.whl"}', "pip install kvmend"),
        (None, "pip install kvmend"),
    ],
)
def test_another_environment_gets_the_clone_or_the_published_package(
    record: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return record

    monkeypatch.setattr("sembase.errors.distribution", lambda _: Installed())
    assert install_elsewhere_command() == command


def test_hints_name_the_distribution_of_this_project() -> None:
    assert install_command("live") == f"pip install '{PROJECT['name']}[live]'"
    assert install_command("live") in str(MissingDependencyError("httptools", "live", "this"))
    for extra in ("live", "gateway", "simulator"):
        assert extra in PROJECT["optional-dependencies"]
