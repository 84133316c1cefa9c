"""``semblend doctor`` in the engine's own environment: its parser, its configuration, its layers, our verdict."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engines.vllm_inside.tiny import LAYERS, write_config

from semblend.doctor.serve_command import VLLM, ServeCommand, connector_options
from semblend.doctor.vllm_check import parse_flags
from semblend.integration.vllm.flags import serve_flags

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[3]


def doctor(model: Path, *words: str, start: bool = True) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-P", "-m", "semblend.cli", "doctor", "--json", *(["--start"] if start else [])]
    done = subprocess.run(
        [*command, "--", "vllm", "serve", str(model), "--dtype=float32", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.stdout.startswith("{"), done.stderr[-4000:]
    record: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, record


def test_flags_to_use_are_found_and_accepted(tmp_path: Path) -> None:
    """One run: the command as given has no connector, the proposed one is judged by the engine's own layers."""
    memory = "--kv-cache-memory-bytes=100M"
    code, record = doctor(
        write_config(tmp_path), "--skip-tokenizer-init", "--max-model-len=1024", "--block-size=32", memory
    )
    assert code == 0
    assert record["given"]["state"] == "disabled"
    assert record["verdict"]["state"] == "ready"
    assert record["proposed"]["facts"]["KV cache groups"] == f"from the engine's layers: {LAYERS} x FullAttentionSpec"
    assert record["proposed"]["facts"]["block size"] == "32"
    assert record["proposed"]["platform"].startswith("cpu")
    threads = record["proposed"]["facts"]["compute threads"]
    options = connector_options(ServeCommand(VLLM, "M", tuple(record["proposed"]["flags"])))
    assert record["proposed"]["flags"][-4:] == list(serve_flags(options))
    assert set(options) == {"host_bytes"}
    program, *pasted = shlex.split(record["proposed"]["command"])
    assert [program, *pasted[:3]] == ["kvmend", "serve", "--engine", "vllm"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kvmend", *pasted, "--semblend-check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "SemBlend will be enabled, if its self-test passes." in done.stderr
    assert f"kvmend serve --engine vllm: compute threads: {threads}\n" in done.stderr
    assert record["model"]["architecture"] == "LlamaForCausalLM"
    assert record["model"]["rope"].startswith("default, rope_theta 10000")
    assert [each["name"] for each in record["installation"]["engines"]] == ["vllm"]


def test_a_server_that_takes_all_memory_is_refused_and_one_that_fits_is_proposed(tmp_path: Path) -> None:
    code, record = doctor(write_config(tmp_path), "--skip-tokenizer-init", "--gpu-memory-utilization=1", start=False)
    assert (code, record["verdict"]["state"]) == (1, "start_fails")
    assert record["verdict"]["reason"].startswith("Not enough memory: ")
    code, record = doctor(write_config(tmp_path), "--skip-tokenizer-init", start=False)
    assert (code, record["verdict"]["state"]) == (0, "ready")
    assert {"--gpu-memory-utilization", "--enable-prompt-tokens-details"} < set(record["proposed"]["flags"])


def test_a_refusal_is_the_connectors_own_sentence(tmp_path: Path) -> None:
    flags = (*serve_flags(), "--pipeline-parallel-size=2", "--skip-tokenizer-init", "--kv-cache-memory-bytes=100M")
    code, record = doctor(write_config(tmp_path), *flags, start=False)
    assert code == 1
    assert (record["given"]["state"], record["given"]["reason"]) == (
        "disabled",
        "Pipeline parallelism of 2 is not supported.",
    )


def test_deployed_flags_are_accepted_by_the_servers_own_parser() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "semgate" / "values.yaml").read_text(encoding="utf-8"))
    deployed = [compose["services"][name]["command"] for name in ("vllm-a", "vllm-b")]
    deployed.append(chart["engine"]["args"])
    for model, *flags in deployed:
        parsed = parse_flags(ServeCommand(VLLM, model, tuple(flags)))
        assert parsed.kv_transfer_config.kv_connector_extra_config["experimental_gpu"] is True
        assert parsed.kv_transfer_config.kv_load_failure_policy == "recompute"
        assert parsed.worker_cls == "semblend.integration.vllm.worker.SemBlendWorker"
        assert parsed.kv_events_config.publisher == "zmq"
        assert parsed.model == "/model"
