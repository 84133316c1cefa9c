"""Architecture variants as tiny configurations: what each is made of, and what must become of it.

Weights are random (``weights.py``), so nothing is downloaded. ``refused`` is a part of the sentence that must be given;
an empty one means that the model must be served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VOCABULARY = 512
MAX_MODEL_LEN = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    name: str
    family: str  # what people know it by
    model_type: str
    architecture: str
    settings: Mapping[str, Any]
    engine: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    in_ci: bool = False


_DENSE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.05,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_PLAIN: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
_HALF: dict[str, Any] = {**_PLAIN, "partial_rotary_factor": 0.5}
_QUARTER: dict[str, Any] = {**_PLAIN, "partial_rotary_factor": 0.25}
_LINEAR: dict[str, Any] = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
_DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
_LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
    "rope_theta": 5e5,
}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 512,
    "rope_theta": 1e6,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 512,
    "short_factor": [1.0 + 0.02 * pair for pair in range(24)],
    "long_factor": [1.0 + 0.9 * pair for pair in range(24)],
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
}
_LOCAL_EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_SHARED_EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_MLA: dict[str, Any] = {
    **_SHARED_EXPERTS,
    "kv_lora_rank": 512,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "num_key_value_heads": 4,
}
_MLA_YARN: dict[str, Any] = {**_YARN, "rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 1.0}
_WINDOWS: dict[str, Any] = {
    "num_hidden_layers": 4,
    "sliding_window": 16,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}


_RECURRENT = "Models with recurrent (Mamba, linear attention) layers are not supported."
# The backend for AMX, which vLLM prefers where a processor has it, does not start in float32.
_MLA_ENGINE: dict[str, Any] = {"block_size": 16, "attention_config": {"backend": "CPU_MLA"}}
_HYBRID: dict[str, Any] = {"num_gpu_blocks_override": 400}  # several groups of blocks


def _dense(rope: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {**_DENSE, **({} if rope is None else {"rope_parameters": dict(rope)}), **changes}


def _variant(
    name: str, family: str, model_type: str, architecture: str, settings: dict[str, Any], **rest: Any
) -> Variant:
    return Variant(
        name=name, family=family, model_type=model_type, architecture=architecture, settings=settings, **rest
    )


VARIANTS: tuple[Variant, ...] = (
    _variant("llama", "Llama 2, SmolLM2", "llama", "LlamaForCausalLM", _dense(_PLAIN)),
    _variant("llama-3", "Llama 3.1, 3.2, 3.3", "llama", "LlamaForCausalLM", _dense(_LLAMA3), in_ci=True),
    _variant("llama-yarn", "Llama with YaRN", "llama", "LlamaForCausalLM", _dense(_YARN)),
    _variant("llama-linear", "Llama, linear scaling", "llama", "LlamaForCausalLM", _dense(_LINEAR)),
    _variant("llama-dynamic", "Llama, dynamic NTK", "llama", "LlamaForCausalLM", _dense(_DYNAMIC)),
    _variant("llama-bf16", "Llama in bf16", "llama", "LlamaForCausalLM", _dense(_PLAIN), engine={"dtype": "bfloat16"}),
    _variant(
        "mistral",
        "Mistral Small, Nemo",
        "mistral",
        "MistralForCausalLM",
        _dense(_PLAIN, sliding_window=None, head_dim=32),
    ),
    _variant("mixtral", "Mixtral", "mixtral", "MixtralForCausalLM", _dense(_PLAIN, **_LOCAL_EXPERTS)),
    _variant("qwen2", "Qwen2, Qwen2.5 (key bias)", "qwen2", "Qwen2ForCausalLM", _dense(_PLAIN), in_ci=True),
    _variant(
        "qwen2-bf16", "Qwen2.5 in bf16", "qwen2", "Qwen2ForCausalLM", _dense(_PLAIN), engine={"dtype": "bfloat16"}
    ),
    _variant("qwen3", "Qwen3", "qwen3", "Qwen3ForCausalLM", _dense(_PLAIN, head_dim=32)),
    _variant("qwen3-yarn", "Qwen3 with YaRN", "qwen3", "Qwen3ForCausalLM", _dense(_YARN, head_dim=32)),
    _variant("qwen3-moe", "Qwen3 MoE", "qwen3_moe", "Qwen3MoeForCausalLM", _dense(_PLAIN, head_dim=32, **_EXPERTS)),
    _variant("glm-4", "GLM-4", "glm4", "Glm4ForCausalLM", _dense(_HALF, head_dim=32)),
    _variant(
        "glm-4-moe",
        "GLM-4.5, 4.6",
        "glm4_moe",
        "Glm4MoeForCausalLM",
        _dense(_HALF, head_dim=32, use_qk_norm=True, **_SHARED_EXPERTS),
    ),
    _variant("phi-3", "Phi-3, Phi-4", "phi3", "Phi3ForCausalLM", _dense(_PLAIN, sliding_window=None)),
    _variant(
        "phi-4-mini",
        "Phi-4-mini (longrope, partial)",
        "phi3",
        "Phi3ForCausalLM",
        _dense(_LONGROPE, hidden_size=256, sliding_window=None, original_max_position_embeddings=512),
        in_ci=True,
    ),
    _variant(
        "phi-moe", "Phi-3.5 MoE", "phimoe", "PhiMoEForCausalLM", _dense(_PLAIN, sliding_window=None, **_LOCAL_EXPERTS)
    ),
    _variant(
        "gpt-oss",
        "gpt-oss (windows, sinks, YaRN)",
        "gpt_oss",
        "GptOssForCausalLM",
        _dense(
            {**_YARN, "rope_theta": 1.5e5, "truncate": False},
            head_dim=64,
            num_hidden_layers=4,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"] * 2,
            intermediate_size=128,
            **_LOCAL_EXPERTS,
        ),
        engine={"dtype": "bfloat16"},
    ),
    _variant(
        "gemma-2",
        "Gemma 2",
        "gemma2",
        "Gemma2ForCausalLM",
        _dense(
            _PLAIN,
            head_dim=32,
            num_hidden_layers=4,
            sliding_window=16,
            query_pre_attn_scalar=32,
            tie_word_embeddings=True,
        ),
    ),
    _variant(
        "gemma-3",
        "Gemma 3 (two thetas, windows)",
        "gemma3_text",
        "Gemma3ForCausalLM",
        _dense(
            head_dim=32,
            num_hidden_layers=6,
            sliding_window=16,
            layer_types=["sliding_attention"] * 5 + ["full_attention"],
            query_pre_attn_scalar=32,
            tie_word_embeddings=True,
            rope_parameters={
                "sliding_attention": _PLAIN,
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            },
        ),
        in_ci=True,
    ),
    _variant("nemotron", "Nemotron-4", "nemotron", "NemotronForCausalLM", _dense(_HALF, head_dim=32)),
    _variant(
        "minimax-m2",
        "MiniMax-M2 (softmax router)",
        "minimax_m2",
        "MiniMaxM2ForCausalLM",
        _dense(
            _HALF,
            head_dim=64,
            rotary_dim=32,
            use_qk_norm=True,
            qk_norm_type="per_layer",
            intermediate_size=64,
            scoring_func="softmax",
            use_routing_bias=False,
            **_LOCAL_EXPERTS,
        ),
    ),
    _variant(
        "granite",
        "Granite 3",
        "granite",
        "GraniteForCausalLM",
        _dense(_PLAIN, embedding_multiplier=2.0, attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=2.0),
    ),
    _variant(
        "command-r",
        "Command-R (interleaved)",
        "cohere",
        "CohereForCausalLM",
        _dense(_PLAIN, use_qk_norm=False, logit_scale=0.1, tie_word_embeddings=True),
    ),
    _variant(
        "command-a",
        "Command-A (windows, layers without RoPE)",
        "cohere2",
        "Cohere2ForCausalLM",
        _dense(_PLAIN, head_dim=32, logit_scale=0.1, tie_word_embeddings=True, **_WINDOWS),
        in_ci=True,
    ),
    _variant("olmo-2", "OLMo 2", "olmo2", "Olmo2ForCausalLM", _dense(_PLAIN)),
    _variant("olmo-3", "OLMo 3 (windows)", "olmo3", "Olmo3ForCausalLM", _dense(_YARN, **_WINDOWS)),
    _variant("olmoe", "OLMoE", "olmoe", "OlmoeForCausalLM", _dense(_PLAIN, num_experts=4, num_experts_per_tok=2)),
    _variant(
        "smollm-3",
        "SmolLM3 (layers without RoPE)",
        "smollm3",
        "SmolLM3ForCausalLM",
        _dense(_PLAIN, num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4),
    ),
    _variant(
        "exaone-4",
        "EXAONE 4 (windows, layers without RoPE)",
        "exaone4",
        "Exaone4ForCausalLM",
        _dense(_PLAIN, sliding_window_pattern="LLLG", **_WINDOWS),
    ),
    _variant("seed-oss", "Seed-OSS", "seed_oss", "SeedOssForCausalLM", _dense(_PLAIN, head_dim=32)),
    _variant("starcoder-2", "StarCoder2", "starcoder2", "Starcoder2ForCausalLM", _dense(_PLAIN, sliding_window=None)),
    _variant("stablelm", "StableLM", "stablelm", "StableLmForCausalLM", _dense(_QUARTER, hidden_size=256)),
    _variant("apertus", "Apertus", "apertus", "ApertusForCausalLM", _dense(_LLAMA3, hidden_act="xielu")),
    _variant("ernie-4.5", "ERNIE 4.5 (interleaved)", "ernie4_5", "Ernie4_5ForCausalLM", _dense(_PLAIN, head_dim=32)),
    _variant(
        "gpt-j",
        "GPT-J (interleaved, partial)",
        "gptj",
        "GPTJForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 256,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 4096,
            "rotary_dim": 16,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    _variant(
        "bloom",
        "BLOOM (ALiBi, no rotation)",
        "bloom",
        "BloomForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "n_layer": 3,
            "n_head": 4,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "seq_length": 4096,
        },
    ),
    _variant(
        "deepseek-v3",
        "DeepSeek V3, Kimi K2 (MLA, YaRN)",
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        _dense(_MLA_YARN, topk_method="noaux_tc", scoring_func="sigmoid", **_MLA),
        engine=_MLA_ENGINE,
        in_ci=True,
    ),
    _variant(
        "deepseek-v2",
        "DeepSeek V2 (MLA, plain RoPE)",
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        _dense(_PLAIN, topk_method="greedy", scoring_func="softmax", **_MLA),
        engine=_MLA_ENGINE,
        refused="not a rotation of K",
    ),
    _variant(
        "llama-fp8-kv",
        "Llama, fp8 KV cache",
        "llama",
        "LlamaForCausalLM",
        _dense(_PLAIN, hidden_size=256),
        engine={"kv_cache_dtype": "fp8"},
    ),
    _variant(
        "mistral-window",
        "Mistral 7B v0.1 (all layers windowed)",
        "mistral",
        "MistralForCausalLM",
        _dense(_PLAIN, sliding_window=96, head_dim=32),
        in_ci=True,
    ),
    _variant(
        "ministral-3",
        "Ministral 3 (llama_4_scaling)",
        "ministral3",
        "Ministral3ForCausalLM",
        _dense({**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}, head_dim=32),
        refused="llama_4_scaling",
    ),
    _variant(
        "mistral-scaled",
        "Mistral with llama_4_scaling",
        "mistral",
        "MistralForCausalLM",
        _dense(
            _PLAIN,
            sliding_window=None,
            head_dim=32,
            llama_4_scaling={"original_max_position_embeddings": 512, "beta": 0.5},
        ),
        refused="llama_4_scaling",
    ),
    _variant(
        "llama-4",
        "Llama 4 (chunked attention)",
        "llama4_text",
        "Llama4ForCausalLM",
        _dense(
            _PLAIN,
            head_dim=32,
            num_hidden_layers=8,
            intermediate_size=128,
            intermediate_size_mlp=256,
            num_local_experts=4,
            num_experts_per_tok=1,
            interleave_moe_layer_step=1,
            no_rope_layers=[1, 1, 1, 0] * 2,
            attention_chunk_size=64,
            use_qk_norm=True,
            attn_temperature_tuning=True,
            floor_scale=64,
            attn_scale=0.1,
        ),
        engine=_HYBRID,
        refused="chunked local attention",
    ),
    _variant(
        "hunyuan",
        "HunYuan (norm after RoPE)",
        "hunyuan_v1_dense",
        "HunYuanDenseV1ForCausalLM",
        _dense(_PLAIN, head_dim=32),
        refused="not a rotation of K",
    ),
    _variant(
        "gpt-2",
        "GPT-2 (learned positions)",
        "gpt2",
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 128,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 4096,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        refused="reversed tokens do not give reversed V",
    ),
    _variant(
        "opt",
        "OPT (learned positions)",
        "opt",
        "OPTForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "ffn_dim": 256,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 4096,
            "word_embed_proj_dim": 128,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        refused="reversed tokens do not give reversed V",
    ),
    _variant(
        "gemma-3n",
        "Gemma 3n (shared KV)",
        "gemma3n_text",
        "Gemma3nForCausalLM",
        _dense(
            head_dim=32,
            num_hidden_layers=6,
            sliding_window=16,
            layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=16,
            vocab_size_per_layer_input=VOCABULARY,
            laurel_rank=8,
            altup_num_inputs=2,
            intermediate_size=[256] * 6,
            activation_sparsity_pattern=[0.0] * 6,
            tie_word_embeddings=True,
        ),
        refused="share KV",
    ),
    _variant(
        "gemma-4",
        "Gemma 4 (two head sizes)",
        "gemma4_text",
        "Gemma4ForCausalLM",
        _dense(
            head_dim=32,
            global_head_dim=64,
            num_hidden_layers=6,
            sliding_window=16,
            layer_types=["sliding_attention"] * 5 + ["full_attention"],
            tie_word_embeddings=True,
            num_global_key_value_heads=2,
            hidden_size_per_layer_input=16,
            vocab_size_per_layer_input=VOCABULARY,
            num_kv_shared_layers=0,
        ),
        engine=_HYBRID,
        refused="KV cache groups (hybrid)",
    ),
    _variant(
        "falcon-h1",
        "Falcon-H1 (attention beside Mamba)",
        "falcon_h1",
        "FalconH1ForCausalLM",
        _dense(
            _PLAIN,
            head_dim=32,
            mamba_n_heads=8,
            mamba_d_head=32,
            mamba_d_state=16,
            mamba_n_groups=1,
            mamba_expand=2,
            mamba_d_ssm=256,
        ),
        engine=_HYBRID,
        refused=_RECURRENT,
        in_ci=True,
    ),
    _variant(
        "granite-4-h",
        "Granite 4 H (Mamba and attention layers)",
        "granitemoehybrid",
        "GraniteMoeHybridForCausalLM",
        _dense(
            _PLAIN,
            layer_types=["mamba", "attention", "mamba"],
            mamba_n_heads=8,
            mamba_d_head=32,
            mamba_d_state=16,
            mamba_n_groups=1,
            mamba_expand=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            shared_intermediate_size=64,
            position_embedding_type="rope",
        ),
        engine=_HYBRID,
        refused=_RECURRENT,
    ),
    _variant(
        "lfm-2",
        "LFM2 (convolutions and attention layers)",
        "lfm2",
        "Lfm2ForCausalLM",
        _dense(
            _PLAIN,
            layer_types=["conv", "full_attention", "conv"],
            block_dim=128,
            block_ff_dim=256,
            block_multiple_of=64,
            block_ffn_dim_multiplier=1.0,
            block_auto_adjust_ff_dim=False,
            conv_dim=128,
            conv_dim_out=128,
        ),
        engine=_HYBRID,
        refused=_RECURRENT,
    ),
    _variant(
        "qwen3-next",
        "Qwen3-Next (linear attention)",
        "qwen3_next",
        "Qwen3NextForCausalLM",
        _dense(
            _QUARTER,
            head_dim=64,
            num_hidden_layers=4,
            layer_types=["linear_attention"] * 3 + ["full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            shared_expert_intermediate_size=64,
            **_EXPERTS,
        ),
        engine={**_HYBRID, "dtype": "bfloat16"},
        refused=_RECURRENT,
    ),
    _variant(
        "mamba-2",
        "Mamba 2 (no attention)",
        "mamba2",
        "Mamba2ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "num_heads": 8,
            "head_dim": 32,
            "state_size": 16,
            "n_groups": 1,
            "expand": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        engine=_HYBRID,
        refused=_RECURRENT,
    ),
)


def by_name(name: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.name == name)
