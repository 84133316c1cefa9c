"""Configuration objects as small as the adapter needs them, named as vLLM names them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from semblend.integration.vllm.support import WORKER_CLASS


class FullAttentionSpec(SimpleNamespace):
    """The adapter knows a kind of cache by the name of its class."""


class MLAAttentionSpec(FullAttentionSpec):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


class MambaSpec(SimpleNamespace):
    pass


def spec(kind: type[SimpleNamespace] = FullAttentionSpec, **changes: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "block_size": 128,
        "num_kv_heads": 3,
        "head_size": 64,
        "head_size_v": 64,
        "dtype": "torch.bfloat16",
        "kv_quant_mode": 0,
        "tokens_per_state": 1,
        "sliding_window": None,
    }
    return kind(**(fields | changes))


def cache_of(*specs: SimpleNamespace, layers: int = 30) -> SimpleNamespace:
    groups = [SimpleNamespace(layer_names=[f"l{n}" for n in range(layers)], kv_cache_spec=one) for one in specs]
    return SimpleNamespace(kv_cache_groups=groups)


def config(**changes: Any) -> SimpleNamespace:
    """A SmolLM2 deployment. ``part__name=value`` changes one attribute; a part set whole replaces it."""
    hf = SimpleNamespace(rope_parameters={"rope_theta": 100000.0, "rope_type": "default"})
    whole = SimpleNamespace(
        model_config=SimpleNamespace(
            model="HuggingFaceTB/SmolLM2-135M-Instruct",
            tokenizer="HuggingFaceTB/SmolLM2-135M-Instruct",
            revision=None,
            tokenizer_revision=None,
            tokenizer_mode="auto",
            dtype="torch.bfloat16",
            runner_type="generate",
            architecture="LlamaForCausalLM",
            hf_config=hf,
            hf_text_config=hf,
            get_num_layers=lambda parallel_config: 30,
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            data_parallel_size=1,
            worker_cls=WORKER_CLASS,
        ),
        cache_config=SimpleNamespace(block_size=128, cache_dtype="auto", sliding_window=None),
        device_config=SimpleNamespace(device_type="cpu"),
        kv_transfer_config=SimpleNamespace(kv_role="kv_both", kv_load_failure_policy="recompute"),
        speculative_config=None,
        lora_config=None,
    )
    parts = {
        "hf": hf,
        "model": whole.model_config,
        "parallel": whole.parallel_config,
        "cache": whole.cache_config,
        "device": whole.device_config,
        "transfer": whole.kv_transfer_config,
    }
    for key, value in changes.items():
        part, _, name = key.partition("__")
        setattr(parts[part] if name else whole, name or key, value)
    return whole
