"""The doctor's report on fixed configurations: commands read and proposed, models described, verdicts, exit codes."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError
from semblend.cli import doctor
from semblend.cli.main import main
from semblend.doctor import vllm_check
from semblend.doctor.examination import examine_installation
from semblend.doctor.installation import Installation, judged
from semblend.doctor.model_facts import describe, read_model
from semblend.doctor.report import Report, as_json, as_table
from semblend.doctor.serve_command import (
    SGLANG,
    VLLM,
    ServeCommand,
    connector_options,
    is_ours,
    read_command,
    transfer_of,
    with_semblend,
)
from semblend.doctor.verdict import Checked, State, Verdict
from semblend.doctor.vllm_check import parse_flags, verdict_of
from semblend.integration.vllm.flags import serve_flags, transfer_config
from semblend.integration.vllm.support import WORKER_CLASS, Support

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
}
INSTALLED = Installation("1.0", "3.11", (judged(VLLM, "0.32.0"),), {"torch": "2.13.0"})
EMPTY = Installation("1.0", "3.11", ())


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return str(tmp_path)


class Engine:
    """Gives fixed verdicts and keeps what it was asked."""

    def __init__(self, connected: Verdict, device: str = "cpu") -> None:
        self.connected, self.device = connected, device
        self.asked: list[tuple[ServeCommand, bool, bool]] = []

    def check(self, command: ServeCommand, is_connected: bool, start: bool) -> Checked:
        self.asked.append((command, is_connected, start))
        verdict = self.connected if is_connected else Verdict(State.DISABLED, "not configured")
        return Checked(verdict, self.device, describe(command.model, LLAMA), {"block size": "16"})

    def report(self, command: ServeCommand | None, installation: Installation = INSTALLED) -> Report:
        return examine_installation(
            installation,
            command,
            self.check,
            start=False,
            device_type=lambda: self.device,
            fill_in=lambda command: with_semblend(command, {"host_bytes": 3 << 30, **connector_options(command)}),
        )


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "engine", "flags"),
    [
        ("vllm serve M --tensor-parallel-size 2", VLLM, ("--tensor-parallel-size", "2")),
        ("/opt/bin/vllm serve --port 1 --model M", VLLM, ("--port", "1")),
        ("python3 -m vllm.entrypoints.openai.api_server --model=M --enforce-eager", VLLM, ("--enforce-eager",)),
        ("semblend-sglang --model-path M --page-size 16", SGLANG, ("--page-size", "16")),
        ("python -m sglang.launch_server --model_path M", SGLANG, ()),
    ],
)
def test_a_servers_command_line_is_read(words: str, engine: str, flags: tuple[str, ...]) -> None:
    assert read_command(None, None, shlex.split(words)) == ServeCommand(engine, "M", flags)


def test_options_of_ours_name_the_same() -> None:
    assert read_command(SGLANG, "M", ["--page-size", "16"]) == ServeCommand(SGLANG, "M", ("--page-size", "16"))
    launched = with_semblend(ServeCommand(VLLM, "M", ("--block-size", "16")), {})
    assert read_command(VLLM, "M", ["--block-size", "16"]) == launched, "flags alone are those of `kvmend serve`"
    assert read_command(VLLM, None, []) is None
    assert read_command(None, "M", []) is None, "without an engine there is nothing to check"


@pytest.mark.parametrize(
    ("engine", "model", "words", "message"),
    [
        (SGLANG, None, ["vllm", "serve", "M"], "starts vllm"),
        (VLLM, "A", ["vllm", "serve", "B"], "serves B"),
        (None, None, ["nginx", "-g"], "does not start a server"),
        (VLLM, None, ["--model"], "needs a value"),
    ],
)
def test_contradictions_are_errors(engine: str | None, model: str | None, words: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_command(engine, model, words)


def test_the_proposed_command_adds_our_flags_and_keeps_the_rest() -> None:
    proposed = with_semblend(ServeCommand(VLLM, "M", ("--port", "1")), {"experimental_gpu": True})
    assert proposed.flags[:2] == ("--port", "1")
    assert transfer_of(proposed) == transfer_config({"experimental_gpu": True})
    assert proposed.flags[-2:] == ("--worker-cls", WORKER_CLASS)


def test_the_line_to_paste_is_the_launchers_which_starts_every_build_of_the_engine() -> None:
    given = ServeCommand(VLLM, "M", ("--port", "1"))
    assert given.text == "vllm serve M --port 1"
    proposed = with_semblend(given, {"host_bytes": 1 << 30})
    assert proposed.text == (
        """kvmend serve --engine vllm M --port 1 --semblend-options '{"host_bytes": 1073741824}'"""
    )
    assert read_command(None, None, shlex.split(proposed.text)) == proposed, "the doctor reads its own line"
    assert with_semblend(given, {}).text == "kvmend serve --engine vllm M --port 1"


@pytest.mark.parametrize("program", ["kvmend serve --engine vllm", "semblend-vllm serve"])
def test_the_launcher_puts_the_connector_in_unless_it_is_off(program: str) -> None:
    launched = read_command(None, None, [*program.split(), "M", "--semblend-check", "--port", "1"])
    assert launched == with_semblend(ServeCommand(VLLM, "M", ("--port", "1")), {})
    stock = read_command(None, None, [*program.split(), "M", "--port", "1", "--semblend-off"])
    assert stock == ServeCommand(VLLM, "M", ("--port", "1"))
    with pytest.raises(ConfigurationError, match="--semblend-options is not JSON"):
        read_command(None, None, [*program.split(), "M", "--semblend-options", "{"])


def test_options_of_the_connector_stay_and_a_wrong_role_is_corrected() -> None:
    own = {**transfer_config({"host_bytes": 1 << 30}), "kv_role": "kv_producer"}
    given = ServeCommand(VLLM, "M", (f"--kv_transfer_config={json.dumps(own)}", "--worker-cls", "other.Worker"))
    assert is_ours(transfer_of(given))
    proposed = with_semblend(given, {})
    assert proposed.flags == serve_flags({"host_bytes": 1 << 30})


def test_options_of_another_connector_are_not_ours() -> None:
    other = ServeCommand(
        VLLM, "M", ("--kv-transfer-config", '{"kv_connector": "X", "kv_connector_extra_config": {"a": 1}}')
    )
    assert not is_ours(transfer_of(other))
    assert with_semblend(other, {}).flags == serve_flags()
    with pytest.raises(ConfigurationError, match="not JSON"):
        transfer_of(ServeCommand(VLLM, "M", ("--kv-transfer-config", "{")))


# -- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "rope", "attention"),
    [
        ({}, "default, rope_theta 500000", "full, 32 query heads, 8 KV heads"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "llama3, rope_theta 500000, factor 8",
            "full, 32 query heads, 8 KV heads",
        ),
        (
            {"layer_types": ["sliding_attention"] * 5 + ["full_attention"], "sliding_window": 512},
            "default, rope_theta 500000",
            "1 x full_attention, 5 x sliding_attention (window 512)",
        ),
        (
            {"kv_lora_rank": 512, "qk_rope_head_dim": 64},
            "default, rope_theta 500000",
            "MLA (latent 512, rope part 64)",
        ),
        (
            {"rope_parameters": {"full": {"rope_type": "yarn", "rope_theta": 1e6}, "local": {"rope_theta": 1e4}}},
            "full: yarn, rope_theta 1e+06; local: default, rope_theta 10000",
            "full, 32 query heads, 8 KV heads",
        ),
        ({"rope_theta": None, "sliding_window": 4096}, "none declared", "sliding window of 4096"),
    ],
)
def test_a_model_is_described(extra: dict[str, Any], rope: str, attention: str) -> None:
    facts = describe("M", {**LLAMA, **extra})
    assert (facts.architecture, facts.layers, facts.rope, facts.attention) == ("LlamaForCausalLM", 32, rope, attention)


def test_the_text_part_of_a_larger_model_is_described() -> None:
    facts = describe("M", {"architectures": ["X"], "text_config": {**LLAMA, "architectures": None}})
    assert (facts.architecture, facts.layers) == ("X", 32)


def test_a_folder_without_a_model_is_an_error_and_a_hub_name_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no config\.json"):
        read_model(str(tmp_path))
    with pytest.raises(ConfigurationError, match="there is no folder"):
        read_model(str(tmp_path / "gone"))
    assert read_model("owner/model") is None
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="not a JSON object"):
        read_model(str(tmp_path))


# -- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("support", "verdict"),
    [
        (Support(True, "", sparse_forward=True), Verdict(State.READY)),
        (Support(True, "", sparse_reason="no worker"), Verdict(State.PREFIX_ONLY, "no worker")),
        (Support(False, "no RoPE", version_note="new"), Verdict(State.DISABLED, "no RoPE", ("new",))),
        (
            Support(True, "", sparse_forward=True, experimental="On no device."),
            Verdict(State.READY, "", ("experimental: On no device.",)),
        ),
    ],
)
def test_the_adapters_verdict_is_passed_on(support: Support, verdict: Verdict) -> None:
    assert verdict_of(support) == verdict


def test_a_note_of_the_doctor_follows_the_adapters() -> None:
    support = Support(True, "", sparse_forward=True, version_note="new")
    assert verdict_of(support, "", "small") == Verdict(State.READY, "", ("new", "small"))


@pytest.mark.parametrize(
    ("word", "advice"), [("--enforce_eagr", "; the nearest is --enforce-eager"), ("--xyzzy=1", "")]
)
def test_a_misspelt_flag_of_the_engine_names_the_nearest(
    word: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_arg_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parser.add_argument("model")
        parser.add_argument("--enforce-eager", action="store_true")
        return parser

    targets = {
        "vllm.utils.argparse_utils:FlexibleArgumentParser": argparse.ArgumentParser,
        "vllm.entrypoints.launchers.cli_args:make_arg_parser": make_arg_parser,
    }
    monkeypatch.setattr(vllm_check, "load_target", targets.__getitem__)
    with pytest.raises(ConfigurationError) as error:
        parse_flags(ServeCommand(VLLM, "M", (word,)))
    assert str(error.value) == f"vLLM rejects the flags: unrecognized arguments: {word}{advice}"


def test_flags_without_the_connector_are_proposed_with_it(model: str) -> None:
    engine = Engine(Verdict(State.READY))
    report = engine.report(ServeCommand(VLLM, model, ("--port", "1")))
    assert [connected for _, connected, _ in engine.asked] == [False, True]
    assert doctor.exit_code(report) == 0
    table = as_table(report)
    assert "SemBlend will be enabled, if its self-test passes." in table
    assert report.proposed_command is not None
    assert report.proposed_command.text in table, "on one line, to paste"
    assert "runs when the server starts" in table
    record = json.loads(as_json(report))
    assert record["schema"] == "semblend.doctor.v1"
    assert (record["given"]["state"], record["proposed"]["state"]) == ("disabled", "ready")
    assert record["proposed"]["flags"] == ["--port", "1", *serve_flags({"host_bytes": 3 << 30})]
    assert record["proposed"]["command"].startswith("kvmend serve --engine vllm ")


def test_the_last_line_is_the_verdict(model: str) -> None:
    launched = read_command(VLLM, model, [])
    ready = as_table(Engine(Verdict(State.READY)).report(launched))
    assert "as given" not in ready, "no command line was given"
    assert ready.splitlines()[-1] == "verdict: ready"
    refused = as_table(Engine(Verdict(State.START_FAILS, "Not enough memory: x.")).report(launched))
    assert refused.splitlines()[-1] == "verdict: not ready: Not enough memory: x."
    given = as_table(Engine(Verdict(State.READY)).report(ServeCommand(VLLM, model)))
    assert "as given            SemBlend will be disabled" in given
    assert as_table(Engine(Verdict(State.READY)).report(None)).splitlines()[-1].startswith("verdict: not checked")
    missing = as_table(Engine(Verdict(State.READY)).report(launched, EMPTY))
    assert missing.splitlines()[-1] == "verdict: not ready: vllm is not installed in this environment"


def test_a_gpu_needs_its_option(model: str) -> None:
    engine = Engine(Verdict(State.READY), device="cuda")
    report = engine.report(ServeCommand(VLLM, model, serve_flags()))
    assert report.proposed_command is not None
    assert transfer_of(report.proposed_command) == transfer_config({"experimental_gpu": True})


def test_a_launched_server_is_judged_with_the_memory_it_will_get(model: str) -> None:
    engine = Engine(Verdict(State.READY))
    report = engine.report(read_command(None, None, ["kvmend", "serve", "--engine", "vllm", model]))
    ((checked, is_connected, _),) = engine.asked
    assert is_connected
    assert report.proposed is None
    assert checked.flags == serve_flags({"host_bytes": 3 << 30})
    named = ["--semblend-options", '{"host_bytes": 1073741824}']
    engine.report(read_command(None, None, ["kvmend", "serve", "--engine", "vllm", model, *named]))
    assert engine.asked[-1][0].flags == serve_flags({"host_bytes": 1 << 30}), "the user's own stays"


def test_right_flags_are_judged_once(model: str) -> None:
    engine = Engine(Verdict(State.DISABLED, "Pipeline parallelism of 2 is not supported."))
    report = engine.report(ServeCommand(VLLM, model, serve_flags()))
    assert len(engine.asked) == 1
    assert report.proposed is None
    assert doctor.exit_code(report) == 1
    assert "Pipeline parallelism of 2" in as_table(report)


@pytest.mark.parametrize("state", [State.PREFIX_ONLY, State.START_FAILS, State.UNCHECKED])
def test_whatever_is_not_ready_is_not_success(state: State, model: str) -> None:
    assert doctor.exit_code(Engine(Verdict(state, "why")).report(ServeCommand(VLLM, model))) == 1


def test_a_missing_engine_is_named_and_the_flags_are_still_given(model: str) -> None:
    engine = Engine(Verdict(State.READY))
    report = engine.report(ServeCommand(VLLM, model), EMPTY)
    assert engine.asked == []
    assert doctor.exit_code(report) == 3
    assert "vllm is not installed" in as_table(report)
    assert report.proposed_command == ServeCommand(VLLM, model, serve_flags(), launched=True)
    assert "LlamaForCausalLM" in as_table(report)


def test_versions_are_judged_by_the_adapters_own_rule() -> None:
    assert judged(VLLM, "0.32.7").verified
    assert not judged(VLLM, "0.40.0").verified
    assert judged(SGLANG, "0.5.23").verified
    assert "validated_version" in judged(SGLANG, "0.5.24").note
    unverified = Installation("1.0", "3.11", (judged(VLLM, "0.40.0"),))
    assert doctor.exit_code(Report(unverified)) == 1
    assert "not verified" in as_table(Report(unverified))


def test_the_command_prints_json_and_errors_in_one_line(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "read_installation", lambda: EMPTY)
    assert main(["doctor", "--json", "--engine", "vllm", "--model", model, "--", "--enforce-eager"]) == 3
    record = json.loads(capsys.readouterr().out)
    assert record["given"]["flags"] == ["--enforce-eager", *serve_flags()]
    assert record["verdict"]["state"] == "unchecked"
    assert main(["doctor", "--engine", "vllm", "--", "nginx"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
