"""What ``kvmend serve`` adds to a command line of vLLM: memory that fits this machine, and flags that show the reuse.

Whatever the command names stays. Runs in the engine's environment.
"""

from __future__ import annotations

import argparse
from typing import Final

from sembase.registry import load_target
from semblend.doctor.host_memory import available_bytes, default_host_bytes, fit_cpu
from semblend.doctor.serve_command import ServeCommand, connector_options, names, with_flags, with_semblend
from semblend.doctor.vllm_check import (
    UTILIZATION_FLAG,
    cpu_engine,
    device_type,
    node_bytes,
    parse_flags,
    worker_count,
)
from semblend.integration.vllm.options import parse_options

_DETAILS: Final = "--enable-prompt-tokens-details"
_SILENCED: Final = ("--disable-access-log-for-endpoints", "/health,/metrics")


def fill_in(command: ServeCommand) -> ServeCommand:
    """Raises ``ConfigurationError`` for flags or options that the engine or the connector rejects."""
    parsed = parse_flags(command)
    flags: list[str] = []
    if not getattr(parsed, "enable_prompt_tokens_details", True) and not names(command, _DETAILS):
        flags.append(_DETAILS)
    if getattr(parsed, "disable_access_log_for_endpoints", "") is None:
        flags += _SILENCED
    options = dict(connector_options(command))
    if (free := available_bytes()) is not None:
        workers = worker_count(parsed)
        donors = parse_options({"host_bytes": options["host_bytes"]}).host_bytes if "host_bytes" in options else None
        if device_type() == "cpu":
            parsed.kv_cache_memory_bytes = parsed.kv_cache_memory_bytes or _kv_space()
            engine = cpu_engine(command, parsed, workers)[0] if _names_memory(command, parsed) else None
            total, free_on_nodes = node_bytes()
            fraction, donors = fit_cpu(min(free, free_on_nodes), total, workers, engine=engine, donors=donors)
            flags += [UTILIZATION_FLAG, f"{fraction:g}"] if engine is None else []
        options.setdefault("host_bytes", donors or default_host_bytes(free, workers))
    return with_semblend(with_flags(command, flags), options)


def _names_memory(command: ServeCommand, parsed: argparse.Namespace) -> bool:
    """By a flag, in the file of ``--config``, or in the environment."""
    default = load_target("vllm.engine.arg_utils:EngineArgs").gpu_memory_utilization
    is_other = parsed.gpu_memory_utilization != default
    return is_other or names(command, UTILIZATION_FLAG) or bool(parsed.kv_cache_memory_bytes)


def _kv_space() -> int:
    """Of vLLM's variable ``VLLM_CPU_KVCACHE_SPACE``, in bytes."""
    return int(load_target("vllm.envs:VLLM_CPU_KVCACHE_SPACE") or 0) << 30
