"""Ports are handed out once, also to processes that ask at the same time, as workers of a test run do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripts.engines.ports import free_port, is_free
from scripts.private_venv import ROOT

ASK_FOR = """
import sys
from types import SimpleNamespace
from scripts.engines import ports
ports._draws = SimpleNamespace(randint=lambda *_: int(sys.argv[1]))
print(ports.free_port())
"""


def asked_for(port: int) -> subprocess.CompletedProcess[str]:
    """By another process, whose draws all give this port."""
    command = [sys.executable, "-c", ASK_FOR, str(port)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.skipif(sys.platform != "linux", reason="ports are reserved by names that only Linux has")
def test_a_port_is_not_given_to_two_processes_before_either_listens() -> None:
    port = free_port()
    assert is_free(port), "the server that was given it does not listen yet"
    other = asked_for(port)
    assert other.returncode != 0, other.stdout
    assert "no free port" in other.stderr


def test_a_port_of_a_process_that_ended_is_given_again() -> None:
    port = next(each for each in range(31_000, 32_000) if asked_for(each).returncode == 0)
    assert asked_for(port).stdout == f"{port}\n"
