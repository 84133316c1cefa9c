"""vLLM's own configuration for a command line, judged by the rule the connector applies when the server starts.

Runs in the engine's environment and loads no weights. With ``start`` the model's layers are built on the meta device,
which takes no memory, and the KV cache groups are the engine's; without it, full attention in all layers is assumed.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import math
import re
import tempfile
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.registry import load_target
from semblend.doctor import cpu_threads
from semblend.doctor.host_memory import WORKER, CpuMemory, available_bytes, gib, in_tokens, weight_bytes
from semblend.doctor.measured_answers import FACT, describe_budgets
from semblend.doctor.model_facts import describe
from semblend.doctor.serve_command import ServeCommand
from semblend.doctor.verdict import Checked, State, Verdict
from semblend.integration.core.start_up import small_donor_memory
from semblend.integration.vllm.options import parse_options
from semblend.integration.vllm.support import Support, examine, has_own_worker

_PARALLEL_SIZES: Final = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
UTILIZATION_FLAG: Final = "--gpu-memory-utilization"
_FITTED_LENGTH: Final = -1  # --max-model-len auto: what the KV cache holds
NOT_CONFIGURED: Final = "The command line does not name SemBlend's connector."
ASSUMED: Final = "assumed: full attention in all layers, one group (--start builds the layers)"


def device_type() -> str:
    """``cpu``, ``cuda``, or what else the engine finds in this machine."""
    return str(load_target("vllm.platforms:current_platform").device_type)


def parse_flags(command: ServeCommand) -> argparse.Namespace:
    """The engine's parser of ``vllm serve``; a flag it rejects raises ``ConfigurationError`` with its message."""
    parser = load_target("vllm.utils.argparse_utils:FlexibleArgumentParser")(prog="vllm serve")
    parser = load_target("vllm.entrypoints.launchers.cli_args:make_arg_parser")(parser)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed: argparse.Namespace = parser.parse_args([command.model, *command.flags])
    except SystemExit:
        reason = _last_line(printed.getvalue()).removeprefix("vllm serve: error: ")
        raise ConfigurationError(f"vLLM rejects the flags: {reason}{_nearest_flag(reason, parser)}") from None
    parsed.model = command.model
    return parsed


def _nearest_flag(reason: str, parser: argparse.ArgumentParser) -> str:
    """The flag that a misspelt one resembles, to append to the parser's message."""
    unknown = re.search(r"unrecognized arguments: (--[^\s=]+)", reason)
    known = [flag for action in parser._actions for flag in action.option_strings]
    near = difflib.get_close_matches(unknown[1].replace("_", "-"), known, n=1) if unknown else []
    return f"; the nearest is {near[0]}" if near else ""


def worker_count(parsed: Any) -> int:
    """Workers of the server, on all its nodes, from its parsed flags or its parallel configuration."""
    return math.prod(int(getattr(parsed, name, None) or 1) for name in _PARALLEL_SIZES)


def check_vllm(command: ServeCommand, *, is_connected: bool, start: bool) -> Checked:
    """``is_connected``: the command names our connector. Raises ``ConfigurationError`` for flags the engine rejects."""
    parsed = parse_flags(command)
    usage = load_target("vllm.usage.usage_lib:UsageContext").OPENAI_API_SERVER
    try:
        config = load_target("vllm.engine.arg_utils:AsyncEngineArgs").from_cli_args(parsed).create_engine_config(usage)
    except Exception as error:  # noqa: BLE001 - whatever stops the engine here stops the server too
        return Checked(Verdict(State.START_FAILS, f"vLLM: {_last_line(str(error)) or type(error).__name__}"))
    facts = _facts_of(config)
    threads = cpu_threads.read_threads(config.parallel_config) if device_type() == "cpu" else None
    if threads is not None:
        facts[cpu_threads.FACT] = threads.describe(launched=command.launched)
    model = describe(command.model, config.model_config.hf_config.to_dict())
    platform = _platform()
    if not is_connected:
        if shortage := _shortage(config, command, facts):
            return Checked(Verdict(State.START_FAILS, shortage), platform, model, facts)
        return Checked(Verdict(State.DISABLED, NOT_CONFIGURED), platform, model, facts)
    try:
        options = parse_options(config.kv_transfer_config.kv_connector_extra_config)
    except ConfigurationError as error:
        return Checked(Verdict(State.START_FAILS, str(error)), platform, model, facts)
    groups, facts["KV cache groups"] = _groups(config, start=start)
    try:
        facts[FACT] = describe_budgets(options, options.gates, "vllm", config.model_config.model)
    except ConfigurationError as error:
        return Checked(Verdict(State.START_FAILS, str(error)), platform, model, facts)
    per_token = _bytes_per_token(groups)
    facts["donor memory"] = in_tokens(options.host_bytes, per_token)
    context = 0 if config.model_config.original_max_model_len == _FITTED_LENGTH else config.model_config.max_model_len
    if shortage := _shortage(config, command, facts, options.host_bytes, per_token * context):
        return Checked(Verdict(State.START_FAILS, shortage), platform, model, facts)
    support = examine(config, groups, experimental_gpu=options.experimental_gpu)
    small = small_donor_memory(options.host_bytes, per_token, config.model_config.max_model_len)
    environment = {} if threads is None else threads.environment
    return Checked(verdict_of(support, small), platform, model, facts, environment)


def cpu_engine(command: ServeCommand, cache: Any, workers: int) -> tuple[int, str]:
    """Memory that each worker on a CPU takes, and the setting it follows from. ``cache``: settings of vLLM's cache."""
    if cache.kv_cache_memory_bytes:
        taken = int(cache.kv_cache_memory_bytes) + weight_bytes(command.model) // workers + WORKER
        return taken, f"a KV cache of {gib(cache.kv_cache_memory_bytes)}, weights and worker"
    total, _ = node_bytes()
    setting = f"{UTILIZATION_FLAG} {cache.gpu_memory_utilization:g} of {gib(total)}"
    return math.ceil(total * cache.gpu_memory_utilization), setting


def node_bytes() -> tuple[int, int]:
    """The memory that ``--gpu-memory-utilization`` is a fraction of, a node's, and what all nodes have free.

    Nodes may have less than the machine as a whole reports, and vLLM goes by them.
    """
    resources = "vllm.utils.cpu_resource_utils"
    read = load_target(f"{resources}:get_memory_node_info")
    nodes = [read(node) for node in load_target(f"{resources}:get_visible_memory_node")()]
    return min(node.total_memory for node in nodes), sum(node.available_memory for node in nodes)


def _shortage(config: Any, command: ServeCommand, facts: dict[str, str], donors: int = 0, context: int = 0) -> str:
    """Why this machine has too little memory for a server on a CPU, or nothing; adds the sum to ``facts``."""
    if device_type() != "cpu" or (available := available_bytes()) is None:
        return ""
    free = min(available, node_bytes()[1])
    workers = worker_count(config.parallel_config)
    engine, setting = cpu_engine(command, config.cache_config, workers)
    memory = CpuMemory(
        free=free,
        workers=workers,
        engine=engine,
        setting=setting,
        donors=donors,
        weights=weight_bytes(command.model) // workers,
        context=context,
    )
    facts["memory"] = f"{memory.text}; {gib(free)} GiB are free now"
    return memory.shortage


def verdict_of(support: Support, *more: str) -> Verdict:
    """``more``: notes that the adapter does not make; empty ones are left out."""
    experimental = f"experimental: {support.experimental}" if support.experimental else ""
    notes = tuple(filter(None, (support.version_note, experimental, *more)))
    if not support.usable:
        return Verdict(State.DISABLED, support.reason, notes)
    if not support.sparse_forward:
        return Verdict(State.PREFIX_ONLY, support.sparse_reason, notes)
    return Verdict(State.READY, "", notes)


def _facts_of(config: Any) -> dict[str, str]:
    cache, scheduler, parallel = config.cache_config, config.scheduler_config, config.parallel_config
    runner = "V2" if getattr(config, "use_v2_model_runner", False) else "V1"
    return {
        "model runner": runner,
        "async scheduling": str(bool(scheduler.async_scheduling)),
        "block size": str(cache.block_size),
        "KV cache dtype": str(cache.cache_dtype),
        "prefix caching": str(bool(cache.enable_prefix_caching)),
        "tensor parallel": str(parallel.tensor_parallel_size),
        "eager": str(bool(config.model_config.enforce_eager)),
        "step tokens": str(scheduler.max_num_batched_tokens),
    }


def _platform() -> str:
    found = load_target("vllm.platforms:current_platform")
    try:
        name = found.get_device_name()
    except Exception:  # noqa: BLE001 - a platform without a name is described by its type
        name = ""
    return f"{found.device_type} ({name})" if name else str(found.device_type)


def _groups(config: Any, *, start: bool) -> tuple[Any, str]:
    """The KV cache configuration that ``examine`` reads, and how it was found."""
    if start:
        try:
            specs = _built_specs(config)
        except Exception as error:  # noqa: BLE001 - some layers cannot be built without a device or weights
            return _assumed(config), f"{ASSUMED}; the layers could not be built: {_last_line(str(error))}"
        if has_own_worker(config.parallel_config):
            specs = load_target("semblend.integration.vllm.cache_specs:keep_every_token")(specs)
        groups = load_target("vllm.v1.core.kv_cache_utils:get_kv_cache_groups")(config, specs)
        kinds = ", ".join(
            f"{len(group.layer_names)} x {type(group.kv_cache_spec).__name__}"
            + (f" (window {window})" if (window := getattr(group.kv_cache_spec, "sliding_window", None)) else "")
            for group in groups
        )
        return _cache_config(groups), f"from the engine's layers: {kinds or 'none'}"
    return _assumed(config), ASSUMED


def _assumed(config: Any) -> Any:
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    shape: dict[str, Any] = {
        "block_size": cache.block_size,
        "num_kv_heads": model.get_num_kv_heads(parallel),
        "head_size": model.get_head_size(),
        "dtype": model.dtype,
    }
    kind = "MLAAttentionSpec" if model.use_mla else "FullAttentionSpec"
    spec = load_target(f"vllm.v1.kv_cache_interface:{kind}")(**shape)
    names = [f"model.layers.{number}.self_attn.attn" for number in range(model.get_num_layers(parallel))]
    return _cache_config([load_target("vllm.v1.kv_cache_interface:KVCacheGroupSpec")(names, spec)])


def _bytes_per_token(config: Any) -> int:
    """Of one worker, in all layers. Some group specifications hold one for each of their layers."""
    total = 0.0
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        layers = 1 if hasattr(spec, "kv_cache_specs") else len(group.layer_names)
        total += layers * spec.page_size_bytes / spec.block_size
    return max(1, round(total))


def _cache_config(groups: list[Any]) -> Any:
    made = load_target("vllm.v1.kv_cache_interface:KVCacheConfig")
    return made(num_blocks=1, kv_cache_tensors=[], kv_cache_groups=groups)


def _built_specs(config: Any) -> dict[str, Any]:
    """Each attention layer's own KV cache specification, from a model without weights."""
    state = "vllm.distributed.parallel_state"
    device = load_target("torch:device")
    set_config = load_target("vllm.config:set_current_vllm_config")
    set_dtype = load_target("vllm.utils.torch_utils:set_default_torch_dtype")
    with tempfile.TemporaryDirectory() as folder, set_config(config):
        meeting = (Path(folder) / "meeting").as_uri()
        load_target(f"{state}:init_distributed_environment")(1, 0, meeting, 0, "gloo")
        load_target(f"{state}:ensure_model_parallel_initialized")(1, 1)
        try:
            with device("meta"), set_dtype(config.model_config.dtype):
                load_target("vllm.model_executor.model_loader.utils:initialize_model")(config)
            found: dict[str, Any] = load_target("vllm.v1.worker.gpu.attn_utils:get_kv_cache_spec")(config)
            return found
        finally:
            load_target(f"{state}:cleanup_dist_env_and_memory")()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
