"""The command for people: what it passes on, how it ends, what it says when it cannot."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from scripts.engines import serve
from scripts.engines.server import ServerSpec
from scripts.engines.specs import NO_SPIN, EngineOptions, count_cores, native_dtype, vllm_spec


def test_options_after_two_dashes_reach_the_engine_untouched() -> None:
    words = [
        "vllm",
        "--model",
        "gemma-3-270m",
        "--port",
        "8123",
        "--cores",
        "0-1",
        "--",
        "--max-model-len",
        "4096",
        "--x",
    ]
    engine, options = serve.parse(words)
    assert engine == "vllm"
    spec = vllm_spec(options)
    assert spec.command[spec.command.index("--model") + 1].endswith("/models/gemma-3-270m")
    assert spec.command[spec.command.index("--served-model-name") + 1] == "gemma-3-270m"
    assert spec.port == 8123
    assert spec.command[-3:] == ("--max-model-len", "4096", "--x")


def test_vllm_gets_offline_mode_memory_and_cores() -> None:
    spec = vllm_spec(EngineOptions(kv_cache_gib=3, cores="0-1", environment={"EXTRA": "1"}))
    wanted = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "3",
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "OMP_NUM_THREADS": "2",
        "TORCH_COMPILE_DISABLE": "1",
        "EXTRA": "1",
    }
    assert {name: spec.environment[name] for name in wanted} == wanted
    assert set(spec.environment) - set(wanted) == {"PYTHONPATH"}
    assert spec.environment["PYTHONPATH"] == NO_SPIN
    assert "PYTHONPATH" not in vllm_spec(EngineOptions(spins=True)).environment
    assert "VLLM_SERVER_DEV_MODE" in vllm_spec(EngineOptions(dev_mode=True)).environment


def test_threads_that_are_bound_to_no_core() -> None:
    environment = vllm_spec(EngineOptions(threads=1)).environment
    assert (environment["VLLM_CPU_OMP_THREADS_BIND"], environment["OMP_NUM_THREADS"]) == ("nobind", "1")


@pytest.mark.parametrize(("cores", "count"), [("0", 1), ("0-1", 2), ("0-1,4", 3), ("2,3", 2)])
def test_cores_are_counted(cores: str, count: int) -> None:
    assert count_cores(cores) == count


def test_an_engine_that_is_not_installed_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "MISSING", {"vllm": lambda _model: "nothing here; run: make engine-vllm"})
    assert serve.main(["vllm"]) == 3
    assert "make engine-vllm" in capsys.readouterr().err


def test_an_interrupt_ends_the_engine_in_good_order(
    fake_engine: Callable[..., ServerSpec], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press_ctrl_c(_seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(serve, "time", SimpleNamespace(sleep=press_ctrl_c))
    assert serve.serve(fake_engine("healthy")) == 0
    printed = capsys.readouterr().out
    assert "/v1 serves smollm2-135m" in printed
    assert "fake ended" in printed


def test_a_failed_start_shows_the_log(
    fake_engine: Callable[..., ServerSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.serve(fake_engine("dies")) == 1
    assert "out of memory, said the engine" in capsys.readouterr().err


def test_benchmarks_serve_in_what_the_processor_computes_without_emulation() -> None:
    assert native_dtype("flags : fpu avx512f avx512_bf16 amx_tile") == "bfloat16"
    assert native_dtype("flags : fpu avx2 avx512f avx512vl") == "float32"
    assert native_dtype("Features : fp asimd bf16 i8mm") == "bfloat16"
    command = vllm_spec(EngineOptions(dtype="float32")).command
    assert command[command.index("--dtype") + 1] == "float32"
