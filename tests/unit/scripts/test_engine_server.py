"""The launcher against a fake engine: what it promises when all goes well, and when it does not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.engines.ports import free_port
from scripts.engines.server import EngineServer, EngineStartError, ServerSpec, launch, launch_all
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
FakeEngine = Callable[..., ServerSpec]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_dead(pid: int) -> bool:
    wait_until(lambda: not is_alive(pid), f"process {pid} still runs")
    return True


def child_of(spec: ServerSpec) -> int:
    return int(Path(spec.command[4]).read_text())


def test_a_healthy_engine_answers_and_is_gone_after_the_block(fake_engine: FakeEngine) -> None:
    spec = fake_engine("healthy")
    with launch(spec) as server:
        assert server.is_healthy()
        assert server.startup_s is not None
        assert os.getpgid(server.pid) == server.pid
        assert is_alive(server.pid)
        assert is_alive(child_of(spec))
        assert "line 99" in server.log_tail()
    assert not server.is_running
    assert not server.is_healthy()
    assert not is_alive(server.pid)
    assert wait_dead(child_of(spec)), "the engine's own child must go with it"
    assert server.stop() == -signal.SIGTERM, "stopping again changes nothing"


def test_a_busy_engine_stays_healthy_and_one_that_ended_does_not(fake_engine: FakeEngine) -> None:
    with launch(fake_engine("busy")) as server:
        assert server.is_healthy() != server.is_healthy(), "it refuses every second request"
        assert all(server.stays_healthy() for _ in range(3))
    assert not server.stays_healthy()


def test_an_engine_that_dies_early_is_reported_with_its_last_lines(fake_engine: FakeEngine) -> None:
    spec = fake_engine("dies", 3_600.0)  # its death ends the wait, not the time limit
    with pytest.raises(EngineStartError, match="exited with code 7") as caught:
        launch(spec)
    shown = str(caught.value)
    assert "out of memory, said the engine" in shown
    assert "line 61\n" in shown
    assert "line 60\n" not in shown, "forty lines, no more"
    assert wait_dead(child_of(spec)), "what a dead engine leaves behind is ended too"


def test_an_engine_that_never_becomes_healthy_is_ended(fake_engine: FakeEngine) -> None:
    spec = fake_engine("never_healthy", 2.0)
    with pytest.raises(EngineStartError, match="not healthy after 2 s"):
        launch(spec)
    assert wait_dead(child_of(spec))


def test_an_engine_that_ignores_the_polite_signal_is_killed_with_its_group(fake_engine: FakeEngine) -> None:
    spec = fake_engine("stubborn", 30.0, 0.5)
    server = launch(spec)
    assert server.stop() == -signal.SIGKILL
    assert not is_alive(server.pid)
    assert wait_dead(child_of(spec))


def test_several_engines_at_once_have_ports_of_their_own(fake_engine: FakeEngine, tmp_path: Path) -> None:
    first = fake_engine("healthy")
    second = replace(first, command=(*first.command[:4], str(tmp_path / "second")))
    servers = launch_all([first, second])
    try:
        assert len({server.port for server in servers}) == len({server.log_path for server in servers}) == 2
        assert all(server.is_healthy() for server in servers)
    finally:
        for server in servers:
            server.stop()
    assert not any(is_alive(server.pid) for server in servers)


def test_when_one_of_several_fails_none_is_left(fake_engine: FakeEngine, tmp_path: Path) -> None:
    good = fake_engine("healthy")
    bad = replace(good, command=(*good.command[:3], "dies", str(tmp_path / "second")))
    with pytest.raises(EngineStartError):
        launch_all([good, bad])
    assert wait_dead(child_of(good))
    assert wait_dead(child_of(bad))


def test_a_taken_port_is_refused_before_a_stranger_can_answer_for_the_engine(fake_engine: FakeEngine) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", free_port()))
        stranger.listen()
        with pytest.raises(EngineStartError, match="it is in use"):
            launch(replace(fake_engine("healthy"), port=stranger.getsockname()[1]))


def test_the_environment_reaches_the_engine_without_what_slows_it_down(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    spec = replace(fake_engine("healthy"), environment={"ENGINE_COLOUR": "green"})
    with launch(spec) as server:
        variables = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        scratch = next(Path(v.partition(b"=")[2].decode()) for v in variables if v.startswith(b"TMPDIR="))
        assert list(scratch.iterdir()) == [scratch / f"left-by-{server.port}"]
    assert not scratch.exists(), "what engines leave behind goes with them"
    assert b"ENGINE_COLOUR=green" in variables
    assert not any(variable.startswith(b"PYTHONDONTWRITEBYTECODE") for variable in variables)


LAUNCH_AND_WAIT = """
import sys, time
from pathlib import Path
from scripts.engines import server
server.LOGS = Path(sys.argv[1])
started = server.launch(server.ServerSpec("fake", tuple(sys.argv[2:])))
print(started.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_the_engine_does_not_outlive_its_launcher(fake_engine: FakeEngine, tmp_path: Path, how: signal.Signals) -> None:
    spec = fake_engine("healthy")
    command = [sys.executable, "-c", LAUNCH_AND_WAIT, str(tmp_path), *spec.command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as launcher:
        assert launcher.stdout is not None
        engine = int(launcher.stdout.readline())
        assert is_alive(engine)
        launcher.send_signal(how)
        launcher.wait(timeout=300)
    assert wait_dead(engine)
    assert wait_dead(child_of(spec))


def test_a_started_server_can_be_stopped_before_it_is_healthy(fake_engine: FakeEngine) -> None:
    server = EngineServer(fake_engine("never_healthy"))
    assert server.is_running
    assert not server.is_healthy()
    server.stop()
    assert not is_alive(server.pid)
