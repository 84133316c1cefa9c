"""One real vLLM server for all tests of this folder. The scripts are not installed: they are found at the root."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import EngineOptions, vllm_missing, vllm_spec
from tests.waiting import wait_until


def group_members(group: int) -> list[str]:
    """Processes of a group that still run, by id and name."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition(" (")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _parent, of_group = rest.split()[:3]
        if int(of_group) == group and state != "Z":
            found.append(f"{stat.parent.name} {name}")
    return found


@pytest.fixture(scope="session")
def vllm_server() -> Iterator[EngineServer]:
    """Stock vLLM with prompt-token details and development endpoints; nothing of it may be left afterwards."""
    missing = vllm_missing()
    if missing:
        pytest.skip(missing)
    flags = ("--enable-prompt-tokens-details",)
    server = launch(vllm_spec(EngineOptions(extra=flags, dev_mode=True, threads=1, startup_timeout_s=600.0)))
    try:
        assert len(group_members(server.pid)) > 1, "the engine's workers belong to the group that is ended"
        yield server
    finally:
        server.stop()
    assert not Path(f"/proc/{server.pid}").exists(), "the server process was collected"
    wait_until(lambda: group_members(server.pid) == [], "processes of the server are left")
