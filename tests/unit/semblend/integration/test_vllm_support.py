from __future__ import annotations

from typing import Any

import pytest
from tests.unit.semblend.integration.vllm_fakes import (
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    cache_of,
    config,
    spec,
)

from semblend.integration.vllm.support import ROTATED_ARCHITECTURES, WORKER_CLASS, Support, examine, version_note


def verdict(cache: Any = None, **changes: Any) -> Support:
    return examine(config(**changes), cache_of(spec()) if cache is None else cache, engine_version="0.32.0")


def rope(**parameters: Any) -> dict[str, Any]:
    return {"hf__rope_parameters": {"rope_theta": 1e5, "rope_type": "default", **parameters}}


def test_a_plain_deployment_is_usable_in_full() -> None:
    assert verdict() == Support(
        usable=True,
        reason="",
        rope_theta=100000.0,
        rotary_dim=64,
        head_dim=64,
        kv_heads=3,
        layers=30,
        block_tokens=128,
        sparse_forward=True,
    )


@pytest.mark.parametrize("architecture", sorted(ROTATED_ARCHITECTURES))
def test_the_verified_architectures(architecture: str) -> None:
    assert verdict(model__architecture=architecture).usable


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel__data_parallel_size": 4},
        {"parallel__tensor_parallel_size": 2},
        {"cache__enable_prefix_caching": False},
        {"cache__cache_dtype": "bfloat16"},
        {"hf__rope_parameters": None, "hf__rope_theta": 10000.0},
        {"hf__layer_types": ["full_attention"] * 30},
        {"hf__no_rope_layers": [1] * 30},
    ],
)
def test_what_is_not_an_obstacle(changes: dict[str, Any]) -> None:
    found = verdict(**changes)
    assert found.usable, found.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (rope(rope_type="linear", factor=2.0), "'linear' scales"),
        (rope(rope_type="dynamic", factor=2.0), "'dynamic' scales"),
        (rope(rope_type="yarn", factor=2.0), "'yarn' scales"),
        (rope(rope_type="llama3", factor=8.0), "'llama3' scales"),
        (rope(rope_type="longrope"), "'longrope' scales"),
        (rope(rope_type="deepseek_yarn"), "'deepseek_yarn' scales"),
        (rope(rope_type="a_new_one"), "'a_new_one' scales"),
        ({"hf__rope_parameters": {"type": "linear", "rope_theta": 1e4}}, "'linear' scales"),
        ({"hf__rope_parameters": None, "hf__rope_scaling": {"type": "yarn"}, "hf__rope_theta": 1e4}, "'yarn' scales"),
        (rope(mrope_section=[16, 8, 8]), "mrope"),
        (rope(use_fope=True), "Fourier"),
        (rope(rope_theta=None), "rope_theta"),
        (rope(partial_rotary_factor=0.0), "rotary dimension"),
        (rope(partial_rotary_factor="half"), "rotary dimension"),
        (rope(rope_dim=65), "rotary dimension"),
        (rope(rope_dim=128), "rotary dimension"),
        ({"hf__rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {}}}, "layer type"),
        ({"hf__dual_chunk_attention_config": {"chunk_size": 8192}}, "dual chunk"),
        ({"hf__is_neox_style": False}, "interleaved"),
        ({"hf__rope_interleaved": True}, "interleaved"),
        ({"hf__rope_parameters": None}, "declares no RoPE"),
        ({"hf__rope_parameters": {}}, "declares no RoPE"),
        ({"hf__rope_parameters": None, "model__architecture": "GPT2LMHeadModel"}, "declares no RoPE"),
        ({"model__uses_alibi": True}, "ALiBi"),
        ({"hf__no_rope_layers": [1, 1, 1, 0]}, "no_rope_layers"),
        ({"model__architecture": "Llama4ForCausalLM"}, "Llama4ForCausalLM was not verified"),
        ({"model__architecture": "TransformersForCausalLM"}, "TransformersForCausalLM was not verified"),
        ({"model__architecture": None}, "None was not verified"),
        ({"model__model_class_overrides": {"LlamaForCausalLM": "mine:Llama"}}, "was not verified"),
        ({"model__use_mla": True}, "MLA"),
        ({"model__is_hybrid": True}, "recurrent"),
        ({"model__is_attention_free": True}, "recurrent"),
        ({"model__attention_chunk_size": 8192}, "Chunked local"),
        ({"hf__is_causal": False}, "both directions"),
        ({"cache__sliding_window": 4096}, "window 4096"),
        ({"hf__layer_types": ["full_attention", "sliding_attention"]}, "Sliding window"),
        ({"model__is_encoder_decoder": True}, "Encoder-decoder"),
        ({"model__runner_type": "pooling"}, "only text generation"),
        ({"model__is_multimodal_model": True}, "Multimodal"),
        ({"cache__cache_dtype": "fp8"}, "quantised KV cache"),
        ({"cache__cache_dtype": "float16"}, "quantised KV cache"),
        ({"parallel__pipeline_parallel_size": 2}, "Pipeline parallelism of 2"),
        ({"parallel__decode_context_parallel_size": 2}, "Decode context parallelism of 2"),
        ({"parallel__prefill_context_parallel_size": 4}, "Prefill context parallelism of 4"),
        ({"speculative_config": object()}, "Speculative decoding"),
        ({"hf__num_kv_shared_layers": 10}, "share KV"),
        ({"cache__kv_sharing_fast_prefill": True}, "share KV"),
        ({"transfer__kv_load_failure_policy": "fail"}, "kv_load_failure_policy"),
        ({"transfer__kv_role": "kv_consumer"}, "kv_role"),
        ({"kv_transfer_config": None}, "kv_role"),
        ({"device__device_type": "cuda"}, r"Not verified on this platform \(cuda\)"),
        ({"cache__block_size": 64}, "--block-size"),
    ],
)
def test_each_obstacle_has_its_own_sentence(changes: dict[str, Any], reason: str) -> None:
    found = verdict(**changes)
    assert not found.usable
    assert not found.sparse_forward
    assert (found.rope_theta, found.rotary_dim, found.layers) == (None, None, 0)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.reason)
    assert found.reason.endswith(".")
    assert "\n" not in found.reason


@pytest.mark.parametrize(
    ("cache", "reason"),
    [
        (cache_of(), "0 KV cache groups"),
        (cache_of(spec(), spec()), "2 KV cache groups"),
        (cache_of(spec(MambaSpec)), "MambaSpec"),
        (cache_of(spec(MLAAttentionSpec)), "MLAAttentionSpec"),
        (cache_of(spec(sliding_window=1024)), "window 1024"),
        (cache_of(spec(kv_quant_mode=1)), "quantised KV cache"),
        (cache_of(spec(dtype="torch.uint8")), "quantised KV cache"),
        (cache_of(spec(head_size_v=32)), "different sizes"),
        (cache_of(spec(tokens_per_state=4)), "several tokens per state"),
        (cache_of(spec(), layers=20), "20 of 30 layers"),
        (cache_of(spec(block_size=64)), "Blocks of 64 tokens"),
    ],
)
def test_obstacles_in_the_cache_itself(cache: Any, reason: str) -> None:
    found = verdict(cache)
    assert not found.usable
    assert reason in found.reason


def test_blocks_the_kernels_would_split_are_declined() -> None:
    assert "multiple of 32" in verdict(cache_of(spec(block_size=16)), cache__block_size=16).reason


@pytest.mark.parametrize(
    ("parameters", "rotary_dim"),
    [({"partial_rotary_factor": 0.5}, 32), ({"rope_dim": 16}, 16), ({"partial_rotary_factor": 1}, 64)],
)
def test_partial_rotation_is_read_as_the_engine_reads_it(parameters: dict[str, Any], rotary_dim: int) -> None:
    assert verdict(**rope(**parameters)).rotary_dim == rotary_dim


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parallel__worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker"}, f"--worker-cls {WORKER_CLASS}"),
        ({"parallel__worker_cls": FullAttentionSpec}, "--worker-cls"),
        ({"lora_config": object()}, "LoRA"),
        ({"use_v2_model_runner": True}, "V2 model runner"),
    ],
)
def test_without_the_sparse_forward_prefixes_remain(changes: dict[str, Any], reason: str) -> None:
    found = verdict(**changes)
    assert found.usable
    assert not found.sparse_forward
    assert reason in found.sparse_reason


def test_a_worker_class_counts_by_its_own_name_or_a_base() -> None:
    module, _, name = WORKER_CLASS.rpartition(".")
    worker = type(name, (), {"__module__": module})
    assert verdict(parallel__worker_cls=worker).sparse_forward
    assert verdict(parallel__worker_cls=type("Mine", (worker,), {})).sparse_forward


@pytest.mark.parametrize(
    ("version", "silent"), [("0.32.0", True), ("0.32.1+cpu", True), ("0.33.0", False), (None, False)]
)
def test_another_version_only_warns(version: str | None, silent: bool) -> None:
    assert (version_note(version) == "") is silent
    assert silent or (version or "unknown") in version_note(version)
    found = examine(config(), cache_of(spec()), engine_version="0.40.0")
    assert found.usable
    assert "0.40.0" in found.version_note
