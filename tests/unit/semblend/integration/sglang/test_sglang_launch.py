from __future__ import annotations

import subprocess
import sys

import pytest

from semblend.errors import ConfigurationError
from semblend.integration.sglang.launch import engine_words, parse
from semblend.integration.sglang.missing import EngineMissingError
from semblend.integration.sglang.radix_patcher import patch_radix_cache

WITHOUT_ENGINE = "import sys; sys.modules['sglang'] = None; from semblend.integration.sglang.launch import main; "


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = f"{WITHOUT_ENGINE} sys.argv = {['semblend-sglang', *words]!r}; raise SystemExit(main())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_flags_it_does_not_know_go_to_the_engine_with_our_backend() -> None:
    ours, rest = parse(["--model-path", "m", "--semblend-options", '{"max_holes": 3}', "--port", "1"])
    assert ours.semblend_options == '{"max_holes": 3}'
    assert engine_words(ours, rest) == ["--model-path", "m", "--port", "1", "--radix-cache-backend", "semblend"]


def test_off_starts_the_stock_server_and_another_backend_is_a_contradiction() -> None:
    ours, rest = parse(["--semblend-off", "--radix-cache-backend", "flexkv"])
    assert engine_words(ours, rest) == ["--radix-cache-backend", "flexkv"]
    for words in (["--radix-cache-backend", "flexkv"], ["--radix-cache-backend=flexkv"]):
        with pytest.raises(ConfigurationError, match="set by semblend-sglang"):
            engine_words(*parse(words))


def test_help_works_without_the_engine() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "--semblend-options" in shown.stdout


def test_started_without_the_engine_it_says_what_to_install() -> None:
    ended = run("--model-path", "m")
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
