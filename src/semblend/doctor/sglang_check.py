"""SGLang's own server arguments and model configuration, judged by the rule the radix backend applies when it is built.

The KV pool is one page of the engine's own pool class for dense models; the engine chooses its class when it starts.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.registry import load_target
from semblend.doctor.measured_answers import FACT, describe_budgets
from semblend.doctor.model_facts import describe
from semblend.doctor.serve_command import ServeCommand
from semblend.doctor.verdict import Checked, State, Verdict
from semblend.integration.sglang import launch
from semblend.integration.sglang.options import parse_options
from semblend.integration.sglang.support import Deployment, contract_gap, examine

_FACTS: Final = (
    ("attention backend", "attention_backend"),
    ("page size", "page_size"),
    ("KV cache dtype", "kv_cache_dtype"),
    ("tensor parallel", "tp_size"),
    ("chunked prefill", "chunked_prefill_size"),
)
_POOL: Final = "assumed: K and V of every layer in one pool (the engine chooses at its start)"


def check_sglang(command: ServeCommand, *, is_connected: bool, start: bool) -> Checked:
    """The launcher puts the connector in, so a command is always connected. Nothing more is built with ``start``."""
    del is_connected, start
    ours, rest = launch.parse(command.flags)
    options = parse_options(ours.semblend_options)
    server_args = _parse(["--model-path", command.model, *launch.engine_words(ours, rest)])
    try:
        config = load_target("sglang.srt.configs.model_config:ModelConfig").from_server_args(server_args)
        pool = _page(config, server_args)
    except Exception as error:  # noqa: BLE001 - whatever stops the engine here stops the server too
        return Checked(Verdict(State.START_FAILS, f"SGLang: {str(error) or type(error).__name__}"))
    facts = {name: str(getattr(server_args, key, None)) for name, key in _FACTS} | {"KV pool": _POOL}
    try:
        facts[FACT] = describe_budgets(options, options.gates, "sglang", command.model)
    except ConfigurationError as error:
        return Checked(Verdict(State.START_FAILS, str(error)), facts=facts)
    device = str(server_args.device)
    model = describe(command.model, config.hf_config.to_dict())
    gap = contract_gap(load_target("sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache"))
    support = examine(
        _deployment(server_args, config, pool, options.experimental_gpu), _version(), options.validated_version
    )
    reason = gap or support.reason
    notes = (f"experimental: {support.experimental}",) if support.experimental else ()
    return Checked(Verdict(State.DISABLED if reason else State.READY, reason, notes), device, model, facts)


def _parse(words: list[str]) -> Any:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return load_target("sglang.srt.server_args:prepare_server_args")(words)
    except SystemExit:
        lines = printed.getvalue().strip().splitlines()
        raise ConfigurationError(f"SGLang rejects the flags: {lines[-1] if lines else 'no message'}") from None


def _version() -> str:
    return str(load_target("sglang:__version__"))


def _deployment(server_args: Any, config: Any, pool: Any, experimental_gpu: bool) -> Deployment:
    return Deployment(
        server_args=server_args,
        model_config=config,
        pool=pool,
        has_window_pool=bool(getattr(config, "is_hybrid_swa", False)),
        has_recurrent_state=bool(load_target("sglang.srt.mem_cache.kv_cache_builder:uses_ssm_state")(config)),
        has_host_tier=bool(server_args.enable_hierarchical_cache),
        is_disabled=bool(server_args.disable_radix_cache),
        shard_size=1,
        experimental_gpu=experimental_gpu,
    )


def _page(config: Any, server_args: Any) -> Any:
    page = int(server_args.page_size or 1)
    kept = str(server_args.kv_cache_dtype)
    dtypes = {"fp8_e5m2": "float8_e5m2", "fp8_e4m3": "float8_e4m3fn", "bfloat16": "bfloat16", "bf16": "bfloat16"}
    dtype = load_target(f"torch:{dtypes[kept]}") if kept in dtypes else config.dtype
    return load_target("sglang.srt.mem_cache.memory_pool:MHATokenToKVPool")(
        size=page,
        page_size=page,
        dtype=dtype,
        head_num=config.get_num_kv_heads(server_args.tp_size),
        head_dim=config.head_dim,
        layer_num=1,
        device=server_args.device,
        enable_memory_saver=False,
    )
