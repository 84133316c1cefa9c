from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.semblend.integration.vllm_fakes import (
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    cache_of,
    config,
    spec,
)

from semblend.integration.vllm.support import WORKER_CLASS, Support, examine, version_note

ASYNC = SimpleNamespace(async_scheduling=True)


def verdict(cache: Any = None, **changes: Any) -> Support:
    return examine(config(**changes), cache_of(spec()) if cache is None else cache, engine_version="0.32.0")


def rope(**parameters: Any) -> dict[str, Any]:
    return {"hf__rope_parameters": {"rope_theta": 1e5, "rope_type": "default", **parameters}}


def test_a_plain_deployment_is_usable_in_full() -> None:
    assert verdict() == Support(
        usable=True,
        reason="",
        head_dim=64,
        kv_heads=3,
        layers=30,
        block_tokens=128,
        sparse_forward=True,
        engine_recovers=True,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel__data_parallel_size": 4},
        {"parallel__tensor_parallel_size": 2},
        {"cache__enable_prefix_caching": False},
        {"cache__cache_dtype": "bfloat16"},
        {"hf__rope_parameters": None, "hf__rope_theta": 10000.0},
        {"hf__layer_types": ["full_attention", "sliding_attention"] * 15},
        {"cache__sliding_window": 4096},
        {"hf__no_rope_layers": [1, 1, 0] * 10},
        {"hf__rope_parameters": None},
        {"hf__rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}},
        rope(rope_type="llama3", factor=8.0),
        rope(rope_type="yarn", factor=2.0),
        rope(rope_type="longrope"),
        rope(rope_type="a_new_one"),
        rope(partial_rotary_factor=0.5),
        {"hf__is_neox_style": False},
        {"model__architecture": "AModelOfTomorrow"},
        {"model__uses_alibi": True},
        {"model__is_moe": True},
    ],
)
def test_what_is_not_an_obstacle(changes: dict[str, Any]) -> None:
    found = verdict(**changes)
    assert found.usable, found.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (rope(mrope_section=[16, 8, 8]), "mrope"),
        (rope(use_fope=True), "Fourier"),
        ({"hf__rope_parameters": {"full_attention": {"mrope_section": [16, 8, 8]}}}, "mrope"),
        ({"model__uses_mrope": True}, "mrope"),
        ({"hf__dual_chunk_attention_config": {"chunk_size": 8192}}, "dual chunk"),
        ({"hf__attention_chunk_size": 8192}, "chunked local attention"),
        ({"hf__llama_4_scaling": {"beta": 0.1}}, "llama_4_scaling"),
        (rope(llama_4_scaling_beta=0.1), "llama_4_scaling"),
        ({"hf__attn_temperature_tuning": True}, "attn_temperature_tuning"),
        ({"model__is_moe": True, "parallel__data_parallel_size": 2}, "Experts over 2 data-parallel ranks"),
        ({"model__is_hybrid": True}, "recurrent"),
        ({"model__is_attention_free": True}, "recurrent"),
        ({"hf__is_causal": False}, "both directions"),
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
        ({"transfer__kv_role": "kv_consumer"}, "kv_role"),
        ({"kv_transfer_config": None}, "kv_role"),
        ({"device__device_type": "cuda"}, "real cuda device: set experimental_gpu to true"),
        ({"cache__block_size": 64}, "--block-size"),
    ],
)
def test_each_obstacle_has_its_own_sentence(changes: dict[str, Any], reason: str) -> None:
    found = verdict(**changes)
    assert not found.usable
    assert not found.sparse_forward
    assert found.layers == 0
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
        (cache_of(spec(MLAAttentionSpec)), "different sizes"),
        (cache_of(spec(SlidingWindowSpec, sliding_window=1024)), "free their older tokens"),
        (cache_of(spec(kv_quant_mode=1)), "quantised KV cache"),
        (cache_of(spec(dtype="torch.uint8")), "quantised KV cache"),
        (cache_of(spec(head_size_v=32)), "different sizes"),
        (cache_of(spec(tokens_per_state=4)), "several tokens per state"),
        (cache_of(spec(), layers=20), "20 of 30 layers"),
        (cache_of(spec(block_size=64)), "blocks of 64 tokens"),
    ],
)
def test_obstacles_in_the_cache_itself(cache: Any, reason: str) -> None:
    found = verdict(cache)
    assert not found.usable
    assert reason in found.reason


@pytest.mark.parametrize("size", [16, 32, 64])
def test_every_block_size_of_the_engine_is_usable(size: int) -> None:
    assert verdict(cache_of(spec(block_size=size)), cache__block_size=size).usable


def test_a_gpu_is_used_only_by_an_explicit_option_and_called_experimental() -> None:
    gpu = config(device__device_type="cuda", use_v2_model_runner=True)
    found = examine(gpu, cache_of(spec()), engine_version="0.32.0", experimental_gpu=True)
    assert found.usable
    assert found.sparse_forward
    assert "cuda" in found.experimental
    assert not verdict().experimental


@pytest.mark.parametrize("changes", [{"use_v2_model_runner": True}, {"scheduler_config": ASYNC}])
@pytest.mark.parametrize("without", [{"lora_config": object()}, {"parallel__worker_cls": "auto"}])
def test_nothing_is_loaded_where_a_failed_load_would_stay_uncomputed(
    changes: dict[str, Any], without: dict[str, Any]
) -> None:
    assert verdict(**without).usable
    assert verdict(**without).engine_recovers
    found = verdict(**changes, **without)
    assert not found.usable
    assert "recovery from a failed load" in found.reason
    assert verdict(**changes).usable
    assert not verdict(**changes).engine_recovers
    for given in ({}, changes):
        assert verdict(**given, transfer__kv_load_failure_policy="fail").usable, "the connector sets it itself"


@pytest.mark.parametrize("kept", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_eight_bits_with_one_scale_per_layer_are_usable(kept: str) -> None:
    bytes_kept: dict[str, Any] = {"dtype": "torch.uint8", "kv_quant_mode": 1}
    assert verdict(cache_of(spec(**bytes_kept)), cache__cache_dtype=kept).usable
    latent = spec(MLAAttentionSpec, head_size=576, head_size_v=0, **bytes_kept)
    assert "not for MLA" in verdict(cache_of(latent), cache__cache_dtype=kept).reason
    per_token = spec(dtype="torch.uint8", kv_quant_mode=3)
    assert "one scale per layer" in verdict(cache_of(per_token), cache__cache_dtype=kept).reason


def test_latent_vectors_are_usable() -> None:
    assert verdict(cache_of(spec(MLAAttentionSpec, head_size=576, head_size_v=0)), model__use_mla=True).usable


def test_a_window_inside_a_cache_that_keeps_every_token_is_usable() -> None:
    assert verdict(cache_of(spec(sliding_window=1024))).usable


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parallel__worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker"}, f"--worker-cls {WORKER_CLASS}"),
        ({"parallel__worker_cls": FullAttentionSpec}, "--worker-cls"),
        ({"lora_config": object()}, "LoRA"),
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
