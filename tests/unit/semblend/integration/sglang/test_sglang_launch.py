from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from sembase.errors import ConfigurationError
from semblend.integration.core.missing_engine import EngineMissingError
from semblend.integration.sglang import launch
from semblend.integration.sglang.launch import EXAMPLE, PROGRAM, engine_words, parse
from semblend.integration.sglang.options import parse_options
from semblend.integration.sglang.plugin import without_registry
from semblend.integration.sglang.radix_patcher import patch_radix_cache
from semblend.integration.sglang.support import VERIFIED_VERSION

WITHOUT_ENGINE = "import sys; sys.modules['sglang'] = None; from semblend.integration.sglang.launch import main; "


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = f"{WITHOUT_ENGINE} sys.argv = {['semblend-sglang', *words]!r}; raise SystemExit(main())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)


def test_flags_it_does_not_know_go_to_the_engine_with_our_backend() -> None:
    ours, rest = parse(["--model-path", "m", "--semblend-options", '{"max_holes": 3}', "--port", "1"])
    assert ours.semblend_options == '{"max_holes": 3}'
    assert engine_words(ours, rest) == ["--model-path", "m", "--port", "1", "--radix-cache-backend", "semblend"]


def test_off_starts_the_stock_server_and_another_backend_is_a_contradiction() -> None:
    ours, rest = parse(["--semblend-off", "--radix-cache-backend", "flexkv"])
    assert engine_words(ours, rest) == ["--radix-cache-backend", "flexkv"]
    for words in (["--radix-cache-backend", "flexkv"], ["--radix-cache-backend=flexkv"]):
        with pytest.raises(ConfigurationError, match="set by kvmend serve --engine sglang"):
            engine_words(*parse(words))


def test_help_works_without_the_engine() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "--semblend-options" in shown.stdout
    assert shown.stdout.endswith(f"example:\n  {EXAMPLE}\n")


def test_the_example_of_the_help_is_a_command_line_it_takes() -> None:
    ours, rest = parse(shlex.split(EXAMPLE.removeprefix(PROGRAM)))
    assert parse_options(ours.semblend_options).events == Path("events.jsonl")
    assert engine_words(ours, rest)[:2] == ["--model-path", "Qwen/Qwen2.5-0.5B-Instruct"]


def test_started_without_the_engine_it_says_what_to_install() -> None:
    ended = run("--model-path", "m", "--port", "0")
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1
    assert "pip install sglang==" in ended.stderr


def test_options_are_refused_before_the_engine_is_looked_for() -> None:
    ended = run("--semblend-options", '{"max_hole": 3}')
    assert ended.returncode == 2
    assert "the nearest is 'max_holes'" in ended.stderr


def test_the_programmatic_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sglang", None)
    with pytest.raises(EngineMissingError, match="pip install sglang=="):
        patch_radix_cache()


def test_a_package_the_engine_lacks_is_not_called_a_missing_registry() -> None:
    """SGLang's own CPU platform without its compiled kernels."""
    error = ImportError("No module named 'sgl_kernel'", name="sgl_kernel")
    assert "SGLang needs the package sgl_kernel" in str(without_registry(error))


def test_no_file_of_the_adapter_names_the_plugin_of_the_tests() -> None:
    folder = Path(launch.__file__).parents[2]
    files = list(folder.rglob("*.py"))
    assert Path(launch.__file__) in files
    assert [file for file in files if "semblend_sglang_testing" in file.read_text(encoding="utf-8")] == []


@pytest.fixture
def engine_without_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SGLang 0.5.11 is: it loads plug-ins and has no module to register a radix cache in."""
    for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache"):
        module = types.ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["sglang"], "__version__", "0.5.11", raising=False)
    monkeypatch.delitem(sys.modules, "sglang.srt.mem_cache.registry", raising=False)


@pytest.mark.usefixtures("engine_without_registry")
@pytest.mark.parametrize("door", [patch_radix_cache, launch._verify_registration])
def test_an_engine_without_the_registry_is_refused_by_name(door: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        door()
    message = str(refused.value)
    assert message.startswith("SGLang 0.5.11 has no registry of radix backends (No module named")
    assert message.endswith(f"pip install sglang=={VERIFIED_VERSION}")
    assert "\n" not in message


def test_a_port_in_use_is_refused_before_the_engine_is_imported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = run("--model-path", "m", "--port", str(server.getsockname()[1]))
    assert ended.returncode == 2
    assert "already in use; choose another with --port" in ended.stderr
