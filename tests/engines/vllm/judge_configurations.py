"""Run by the engine's interpreter: builds real configurations of a model and prints the verdict on each as JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from typing import Any

import torch
from vllm.config import KVTransferConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

from semblend.integration.vllm.namespace import deployment_namespace
from semblend.integration.vllm.support import WORKER_CLASS, examine

EngineArgs: Any = importlib.import_module("vllm.engine.arg_utils").EngineArgs  # not part of the stubs

SCALED: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 4096},
    "llama3": {
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 4096,
    },
    "longrope": {
        "short_factor": [1.0] * 32,
        "long_factor": [1.0] * 32,
        "original_max_position_embeddings": 4096,
    },
}


def rope(**parameters: Any) -> dict[str, Any]:
    return {"hf_overrides": {"rope_parameters": {"rope_theta": 100000.0, "rope_type": "default", **parameters}}}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no prefix caching": {"enable_prefix_caching": False},
    "three ranks": {"tensor_parallel_size": 3},
    "stock worker": {"worker_cls": "auto"},
    "lora": {"enable_lora": True},
    "partial rotary": rope(partial_rotary_factor=0.5),
    "legacy scaling": {"hf_overrides": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}},
    "mrope": rope(mrope_section=[16, 8, 8]),
    "sliding window": {"hf_overrides": {"sliding_window": 1024}},
    "qwen3": {"hf_overrides": {"architectures": ["Qwen3ForCausalLM"]}},
    "transformers backend": {"model_impl": "transformers"},
    "pipeline": {"pipeline_parallel_size": 2},
    "speculation": {
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3},
    },
    "small blocks": {"block_size": 16},
    "pooling": {"runner": "pooling"},
    "quantised cache": {"kv_cache_dtype": "fp8"},
    **{f"rope {kind}": rope(rope_type=kind, **parameters) for kind, parameters in SCALED.items()},
}
TRANSFER: dict[str, dict[str, Any]] = {
    "producer only": {"kv_role": "kv_producer"},
}


def cache(config: Any, groups: int = 1, spec_class: Any = FullAttentionSpec, **extra: Any) -> KVCacheConfig:
    spec = spec_class(
        block_size=config.cache_config.block_size,
        num_kv_heads=config.model_config.get_num_kv_heads(config.parallel_config),
        head_size=config.model_config.get_head_size(),
        dtype=torch.bfloat16,
        **extra,
    )
    layers = [
        f"model.layers.{n}.self_attn.attn" for n in range(config.model_config.get_num_layers(config.parallel_config))
    ]
    share = len(layers) // groups
    cut = [KVCacheGroupSpec(layers[n * share : (n + 1) * share], spec) for n in range(groups)]
    return KVCacheConfig(num_blocks=8, kv_cache_tensors=[], kv_cache_groups=cut)


def configuration(model: str, **arguments: Any) -> Any:
    arguments = {"worker_cls": WORKER_CLASS, **arguments}
    config = EngineArgs(model=model, enforce_eager=True, **arguments).create_engine_config()
    config.kv_transfer_config = transfer()
    return config


def transfer(**extra: Any) -> KVTransferConfig:
    return KVTransferConfig(
        **{"kv_connector": "X", "kv_role": "kv_both", "kv_load_failure_policy": "recompute", **extra}
    )


def main(model: str) -> None:
    verdicts: dict[str, Any] = {}
    for name, arguments in ARGUMENTS.items():
        try:
            config = configuration(model, **arguments)
        except (KeyError, ValueError, NotImplementedError, RuntimeError, AssertionError) as error:
            verdicts[name] = {"refused_by_engine": f"{type(error).__name__}: {error}"}
            continue
        verdicts[name] = dataclasses.asdict(examine(config, cache(config)))
    plain = configuration(model)
    for name, extra in TRANSFER.items():
        plain.kv_transfer_config = transfer(**extra)
        verdicts[name] = dataclasses.asdict(examine(plain, cache(plain)))
    plain.kv_transfer_config = transfer()
    verdicts["two groups"] = dataclasses.asdict(examine(plain, cache(plain, groups=2)))
    windowed = cache(plain, spec_class=SlidingWindowSpec, sliding_window=1024)
    verdicts["windowed spec"] = dataclasses.asdict(examine(plain, windowed))
    verdicts["windowed full spec"] = dataclasses.asdict(examine(plain, cache(plain, sliding_window=1024)))
    namespace = dataclasses.asdict(deployment_namespace(plain, "layout"))
    print("RESULT " + json.dumps({"verdicts": verdicts, "namespace": namespace}, default=str))


main(sys.argv[1])
