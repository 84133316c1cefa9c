from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from semblend.integration.sglang.support import (
    _REFUSED_FLAGS,
    CONTRACT,
    HOST_TIER,
    VERIFIED_VERSION,
    Deployment,
    contract_gap,
    examine,
    obstacle_of,
)

TIER = HOST_TIER | {"hicache_storage_backend_extra_config": '{"class_name": "SemBlendStorage"}'}


PLAIN = {"device": "cpu", "attention_backend": "torch_native"} | {name: unused for name, unused, _ in _REFUSED_FLAGS}


class MHATokenToKVPool:
    """Named like the engine's own pool, which is what the verdict asks for."""

    def __init__(self, **changed: Any) -> None:
        dtype = SimpleNamespace(is_floating_point=True, itemsize=4)
        facts = {"kv_cache_layout": "nhd", "store_dtype": dtype, "dtype": dtype, "head_dim": 64, "v_head_dim": 64}
        self.__dict__.update(facts | changed)


class MLATokenToKVPool(MHATokenToKVPool):
    def __init__(self, **changed: Any) -> None:
        super().__init__(**({"use_dsa": False} | changed))


def test_mla_is_left_to_the_self_test() -> None:
    assert examine(deployment(pool=MLATokenToKVPool()), VERIFIED_VERSION).usable


def deployment(*, args: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **more: Any) -> Deployment:
    hf = SimpleNamespace(
        architectures=["LlamaForCausalLM"], rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    )
    facts: dict[str, Any] = {
        "server_args": SimpleNamespace(**(PLAIN | (args or {}))),
        "model_config": SimpleNamespace(**({"hf_config": hf, "is_generation": True} | (model or {}))),
        "pool": MHATokenToKVPool(),
        "has_window_pool": False,
        "has_recurrent_state": False,
        "has_host_tier": False,
        "is_disabled": False,
        "shard_size": 1,
    }
    return Deployment(**(facts | more))


def on_gpu(backend: str, graphs: str = "disabled") -> dict[str, Any]:
    config = SimpleNamespace(prefill=SimpleNamespace(backend=graphs))
    return {"device": "cuda", "attention_backend": backend, "cuda_graph_config": config}


def shared(backend: str, layout: str = "layer_first") -> dict[str, Any]:
    return HOST_TIER | {"hicache_storage_backend": backend, "hicache_mem_layout": layout}


def test_replicas_that_share_donors_may_use_storages_of_the_engine() -> None:
    for args in (shared("file"), shared("mooncake", "page_first_direct"), shared("dynamic")):
        found = examine(deployment(has_host_tier=True, args=args, shares_donors=True), VERIFIED_VERSION)
        assert found.usable, found.reason
        assert not examine(deployment(has_host_tier=True, args=args), VERIFIED_VERSION).usable
    refused = (shared("nixl"), shared("file", "page_head"), shared("file") | {"hicache_write_policy": "write_back"})
    for args in refused:
        assert not examine(deployment(has_host_tier=True, args=args, shares_donors=True), VERIFIED_VERSION).usable


@pytest.mark.parametrize(("backend", "one_range"), [("triton", False), ("fa3", False), ("flashinfer", True)])
def test_a_gpu_is_used_when_asked_for_and_called_experimental(backend: str, one_range: bool) -> None:
    """FlashInfer writes a layer's KV after it attends: gaps of one pass would not see each other."""
    support = examine(deployment(args=on_gpu(backend), experimental_gpu=True), VERIFIED_VERSION)
    assert support.usable
    assert "Not verified on a real cuda device" in support.experimental
    assert backend in support.experimental
    assert support.one_range_per_pass is one_range


def test_the_deployment_that_was_verified_is_usable() -> None:
    support = examine(deployment(args={"tp_size": 1, "disaggregation_mode": "null"}), VERIFIED_VERSION)
    assert support.usable
    assert (support.experimental, support.one_range_per_pass) == ("", False)
    assert examine(deployment(has_host_tier=True, args=dict(TIER)), VERIFIED_VERSION).usable


@pytest.mark.parametrize("version", ["0.6.0", None])
def test_an_engine_that_was_not_validated_is_refused(version: str | None) -> None:
    refused = examine(deployment(), version)
    assert not refused.usable
    assert (version or "an unknown version") in refused.reason
    assert examine(deployment(), version, validated_version="0.6.0").usable is (version == "0.6.0")
    assert examine(deployment(), VERIFIED_VERSION, validated_version="0.6.0").usable


def test_a_setting_the_engine_no_longer_has_is_no_setting_that_is_off() -> None:
    without = deployment()
    del without.server_args.enable_lora
    assert "no setting enable_lora" in examine(without, VERIFIED_VERSION).reason


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"is_disabled": True}, "disabled"),
        ({"has_window_pool": True}, "--disable-hybrid-swa-memory"),
        ({"has_recurrent_state": True}, "recurrent"),
        ({"has_host_tier": True}, "host tier"),
        ({"has_host_tier": True, "args": TIER | {"hicache_mem_layout": "page_first"}}, "page_first"),
        ({"has_host_tier": True, "args": TIER | {"hicache_write_policy": "write_back"}}, "write_back"),
        ({"has_host_tier": True, "args": TIER | {"hicache_host_memory_mode": "buffer_only"}}, "buffer_only"),
        ({"has_host_tier": True, "args": TIER | {"hicache_storage_backend": "file"}}, "not file"),
        ({"has_host_tier": True, "args": TIER | {"hicache_storage_backend": None}}, "not None"),
        ({"has_host_tier": True, "args": dict(HOST_TIER)}, "SemBlendStorage"),
        ({"shard_size": 2}, "sharding"),
        ({"args": {"tp_size": 2}}, "Tensor parallelism"),
        ({"args": {"speculative_algorithm": "EAGLE"}}, "Speculative"),
        ({"args": {"enable_mixed_chunk": True}}, "Mixing"),
        ({"args": {"disaggregation_mode": "prefill"}}, "Disaggregated"),
        ({"args": {"enable_lora": True}}, "LoRA"),
        ({"args": {"tokenizer_worker_num": 2}}, "one id"),
        ({"args": {"device": "cuda"}}, "set experimental_gpu to true"),
        ({"args": {"attention_backend": "intel_amx"}}, "--attention-backend torch_native"),
        ({"args": {"prefill_attention_backend": "flashinfer"}}, "attention backend flashinfer"),
        ({"args": on_gpu("trtllm_mha"), "experimental_gpu": True}, "when the attention backend trtllm_mha writes"),
        ({"args": on_gpu("fa3", "breakable"), "experimental_gpu": True}, "--cuda-graph-backend-prefill=disabled"),
        ({"model": {"is_multimodal": True}}, "Multimodal"),
        ({"model": {"is_generation": False}}, "text generation"),
        ({"model": {"hf_config": SimpleNamespace(attention_chunk_size=64)}}, "chunked local attention"),
        ({"model": {"hf_config": SimpleNamespace(num_kv_shared_layers=2)}}, "share KV"),
        ({"model": {"hf_config": SimpleNamespace(is_causal=False)}}, "both directions"),
        ({"pool": SimpleNamespace()}, "SimpleNamespace"),
        ({"pool": MHATokenToKVPool(kv_cache_layout="hnd")}, "hnd"),
        ({"pool": MHATokenToKVPool(v_head_dim=32)}, "different sizes"),
        ({"pool": MHATokenToKVPool(store_dtype=None)}, "kept as"),
        ({"pool": MLATokenToKVPool(use_dsa=True)}, "Sparse attention"),
        ({"pool": MLATokenToKVPool(), "has_host_tier": True}, "not verified with MLA"),
    ],
)
def test_every_obstacle_has_its_sentence(facts: dict[str, Any], sentence: str) -> None:
    support = examine(deployment(**facts), VERIFIED_VERSION)
    assert not support.usable
    assert sentence in support.reason


@pytest.mark.parametrize("kind", ["yarn", "llama3", "linear", "longrope"])
def test_how_a_model_rotates_is_left_to_the_self_test(kind: str) -> None:
    hf = SimpleNamespace(architectures=["Unheard"], rope_parameters={"rope_type": kind, "rope_theta": 1e4})
    assert examine(deployment(model={"hf_config": hf}), VERIFIED_VERSION).usable


def test_a_plain_request_meets_no_obstacle_and_others_get_a_reason() -> None:
    assert obstacle_of(SimpleNamespace(lora_id=None, return_routed_experts=False)) == ""
    for name in ("multimodal_inputs", "input_embeds", "lora_id", "session", "beam_group", "dllm_config"):
        assert obstacle_of(SimpleNamespace(**{name: object()}))
    assert obstacle_of(SimpleNamespace(return_hidden_states=True))


def test_an_engine_whose_cache_lacks_a_method_we_override_is_refused_by_name() -> None:
    def method() -> None:
        return None

    whole = type("Cache", (), dict.fromkeys(CONTRACT, method))
    assert contract_gap(whole) == ""
    older = type("Cache", (), {name: method for name in CONTRACT if name != "checkpoint"})
    assert "has no checkpoint:" in contract_gap(older)
