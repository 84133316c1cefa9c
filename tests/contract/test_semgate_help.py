"""The help of every `semgate` command is a promise: a changed flag, default or word shows as a changed golden file.

To accept a change: ``python tests/contract/test_semgate_help.py``.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import pytest

from semgate.cli.main import COMMAND_MODULES, main

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = ("", *(module.NAME for module in COMMAND_MODULES))
PROMISED = {
    "router": "--config --replicas --routing-policy --host --port --admin-port --admin-api-key-file "
    "--admin-tls-cert-file --admin-tls-key-file --discovery --kubernetes-service --forward-authorization "
    "--trust-tenant-header --inject-cache-salt --max-attempts --shutdown-seconds --reload-seconds",
    "proxy": "--config --upstream-base-url --trace-output-dir --redact-text --proxy-timeout-seconds --host --port",
    "picker": "--config --replicas --routing-policy --host --port --discovery --kubernetes-service "
    "--status-port --inject-cache-salt --trust-tenant-header",
    "explain": "--log-dir --admin-url --admin-api-key-file --ca-file --json",
}


def help_of(command: str) -> str:
    text = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(text),
        contextlib.suppress(SystemExit),
    ):
        main([command, "--help"] if command else ["--help"])
    return text.getvalue()


def golden_file(command: str) -> Path:
    return GOLDEN / f"semgate_help_{command or 'top'}.txt"


@pytest.mark.parametrize("command", COMMANDS)
def test_semgate_help_is_as_agreed(command: str) -> None:
    """Words and their order; Python versions differ in how they break and indent lines."""
    assert help_of(command).split() == golden_file(command).read_text(encoding="utf-8").split()


@pytest.mark.parametrize("command", sorted(PROMISED))
def test_every_promised_flag_of_semgate_is_there(command: str) -> None:
    words = set(help_of(command).replace("[", " ").replace("]", " ").split())
    assert set(PROMISED[command].split()) <= words


if __name__ == "__main__":
    for name in COMMANDS:
        golden_file(name).write_text(help_of(name), encoding="utf-8")
