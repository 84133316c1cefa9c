"""How each engine is started: options in, a ``ServerSpec`` out. One function per engine, in one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.engines import sglang, vllm
from scripts.engines.ports import free_port
from scripts.engines.server import PORT, STARTUP_TIMEOUT_S, ServerSpec
from scripts.models.known import SMOLLM2, KnownModel
from scripts.private_venv import ROOT, python_of

from semblend.doctor.cpu_threads import BINDING, RESERVED
from semblend.integration.vllm import flags

SERVED_NAME = SMOLLM2.name  # of servers whose options name no other model
# Asked not to compile, the engines still have torch compile a helper or two at their first request, for half a minute.
EAGER = {"TORCH_COMPILE_DISABLE": "1"}
NO_SPIN = str(ROOT / "scripts" / "engines" / "no_spin")
CONNECTOR = flags.CONNECTOR
semblend_flags = flags.serve_flags


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What callers choose. ``cores`` (``"0"``, ``"0-1"``) binds the compute threads, for engines side by side;
    ``threads`` is their number when they are to be bound to none; with neither, vLLM takes a stock server's. ``dtype``
    is vLLM's; "auto" is the checkpoint's. ``spins``: whether vLLM's processes spin while they wait for one another, its
    default, which takes time from the worker on few cores."""

    model: KnownModel = SMOLLM2
    port: int | None = None
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kv_cache_gib: int = 2
    dev_mode: bool = False
    cores: str | None = None
    threads: int | None = None
    startup_timeout_s: float = STARTUP_TIMEOUT_S
    dtype: str = "auto"
    spins: bool = False


def native_dtype(processor: str | None = None) -> str:
    """What this machine computes in without emulation; emulated bfloat16 takes about three times as long as float32.

    ``processor``: the text of ``/proc/cpuinfo``.
    """
    known = Path("/proc/cpuinfo").read_text() if processor is None else processor
    return "bfloat16" if {"avx512_bf16", "amx_bf16", "bf16"} & set(known.split()) else "float32"


def vllm_spec(options: EngineOptions | None = None) -> ServerSpec:
    """vLLM's own OpenAI server, stock: no connector unless ``extra`` names one."""
    chosen = options or EngineOptions()
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(chosen.kv_cache_gib),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        **EAGER,
    }
    if chosen.dev_mode:
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    if chosen.cores is not None:
        environment |= {BINDING: chosen.cores, "OMP_NUM_THREADS": str(count_cores(chosen.cores))}
    elif chosen.threads is not None:
        environment |= {BINDING: "nobind", "OMP_NUM_THREADS": str(chosen.threads)}
    else:
        environment[RESERVED] = "1"  # as without a connector, for which vLLM would reserve one more
    command = (
        *(str(python_of(vllm.RECIPE)), "-P", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(chosen.model.folder), "--served-model-name", chosen.model.name, "--enforce-eager"),
        *("--host", "127.0.0.1", "--port", PORT, "--dtype", chosen.dtype),
        *chosen.extra,
    )
    environment |= chosen.environment
    if not chosen.spins:
        environment["PYTHONPATH"] = ":".join(filter(None, (environment.get("PYTHONPATH"), NO_SPIN)))
    return ServerSpec(
        "vllm",
        command,
        environment,
        port=chosen.port,
        startup_timeout_s=chosen.startup_timeout_s,
    )


def sglang_spec(options: EngineOptions | None = None, *, semblend: Mapping[str, object] | None = None) -> ServerSpec:
    """SGLang's own server on the test-only CPU platform, with its attention made rectangular, stock otherwise.

    ``semblend``: options of our radix backend, which is then put in by its launcher; ``{}`` takes every default.
    """
    chosen = options or EngineOptions()
    cores = count_cores(chosen.cores) if chosen.cores is not None else 1
    environment = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(cores),
        "SGLANG_CPU_OMP_THREADS_BIND": chosen.cores or "0-1",
        "SEMBLEND_EMBEDDER": "none",
        **EAGER,
        "PYTHONPATH": sglang.CODE_PATH,
    }
    launcher: tuple[str, ...] = ("sglang.launch_server",)
    if semblend is not None:
        launcher = ("semblend.integration.sglang.launch", "--semblend-options", json.dumps(dict(semblend)))
    command = (
        *(str(python_of(sglang.RECIPE)), "-P", "-m", *launcher),
        *("--model-path", str(chosen.model.folder), "--served-model-name", chosen.model.name, "--dtype", "float32"),
        *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
        *("--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"),
        *("--mem-fraction-static", "0.3", "--chunked-prefill-size", "8192"),
        "--sleep-on-idle",  # its scheduler would keep a core busy for nothing
        *("--max-total-tokens", "32768", "--host", "127.0.0.1", "--port", PORT, "--nccl-port", str(free_port())),
        *chosen.extra,
    )
    return ServerSpec(
        "sglang",
        command,
        {**environment, **chosen.environment},
        port=chosen.port,
        startup_timeout_s=chosen.startup_timeout_s,
    )


def sglang_missing(model: KnownModel = SMOLLM2) -> str | None:
    """Why the engine cannot be started here, and what to do about it; ``None`` when it can."""
    if not sglang.VENV.is_installed():
        return "no SGLang in .engines/sglang; run: make engine-sglang"
    return model.missing()


def vllm_missing(model: KnownModel = SMOLLM2) -> str | None:
    """Why the engine cannot be started here, and what to do about it; ``None`` when it can."""
    if not vllm.VENV.is_installed():
        return "no vLLM in .engines/vllm; run: make engine-vllm"
    return model.missing()


def count_cores(cores: str) -> int:
    """``"0-1,4"`` -> 3."""
    total = 0
    for part in cores.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


SPECS: Mapping[str, Callable[[EngineOptions], ServerSpec]] = {"vllm": vllm_spec, "sglang": sglang_spec}
MISSING: Mapping[str, Callable[[KnownModel], str | None]] = {"vllm": vllm_missing, "sglang": sglang_missing}
