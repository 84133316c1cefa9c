"""pip's settings, told to uv."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripts import install as installing
from scripts.install import install, uv_variables

SETTINGS = """\
:env:.find-links='/wheels /more/wheels'
:env:.disable-pip-version-check='1'
global.cert='/certificates.crt'
global.extra-index-url='file:///one/simple\\nfile:///two/simple'
global.find-links='/elsewhere'
install.index-url='https://packages.example/simple'
download.find-links='/not/for/installing'
"""


def test_indexes_are_passed_on_and_the_environment_overrides_files() -> None:
    assert uv_variables(SETTINGS) == {
        "UV_FIND_LINKS": "/wheels,/more/wheels",
        "UV_INDEX": "file:///one/simple file:///two/simple",
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
        "SSL_CERT_FILE": "/certificates.crt",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_without_settings_uv_only_resolves_like_pip() -> None:
    assert uv_variables("") == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_variables_of_the_caller_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    def run(command: list[str], **options: object) -> None:
        seen.update(options, command=command)

    monkeypatch.setattr(installing, "pip_settings", lambda: SETTINGS)
    monkeypatch.setattr(subprocess, "run", run)
    install(["numpy"], {"UV_FIND_LINKS": "/mine"})
    assert seen["env"] == {**uv_variables(SETTINGS), "UV_FIND_LINKS": "/mine"}
    assert seen["command"] == [
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, "numpy")
    ]
    install(["--python", "other/bin/python", "numpy"])
    assert str(seen["command"]).count("--python") == 1


def test_this_machines_settings_can_be_read() -> None:
    assert all(isinstance(value, str) for value in uv_variables(installing.pip_settings()).values())
