"""The versions of uvicorn the server was run with: one range in the extra, in the check at start-up and in the pins."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import uvicorn
from tests.unit.semgate.http.test_http_server import echo

from sembase.command_line import ExitCode, exit_code_of
from sembase.errors import MissingDependencyError
from sembase.http.server import HttpServer
from sembase.http.server_protocol import UVICORN_HIGHEST, UVICORN_LOWEST

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("version", [UVICORN_LOWEST, "0.50.2", UVICORN_HIGHEST, f"{UVICORN_HIGHEST}.post1"])
def test_a_version_that_was_run_is_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn, "__version__", version)
    HttpServer(echo, host="127.0.0.1", port=0)


@pytest.mark.parametrize("version", ["0.30.0", "0.35.0", "0.44.0", "0.54.1", "0.55.0", "1.0.0", "unknown"])
def test_any_other_version_is_refused_before_the_server_listens(
    version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(uvicorn, "__version__", version)
    with pytest.raises(MissingDependencyError):
        HttpServer(echo, host="127.0.0.1", port=0)

    def start() -> int:
        HttpServer(echo, host="127.0.0.1", port=0)
        return 0

    assert exit_code_of("semgate", start, "") == ExitCode.ENVIRONMENT
    assert capsys.readouterr().err == (
        f"semgate: the gateway cannot use uvicorn {version}: it needs the package "
        f"'uvicorn>={UVICORN_LOWEST},<={UVICORN_HIGHEST}'. Install it with: pip install 'kvmend[gateway]'\n"
    )


def test_the_extras_allow_exactly_the_versions_the_server_accepts() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in ("gateway", "service"):
        assert f"uvicorn>={UVICORN_LOWEST},<={UVICORN_HIGHEST}" in extras[extra]


def test_the_tests_run_with_the_highest_version() -> None:
    pins = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    assert re.search(rf"^uvicorn=={re.escape(UVICORN_HIGHEST)}$", pins, re.MULTILINE)
