"""A model directory of a few kilobytes, and the engine configuration for it with the connector switched on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.engines.vllm_inside.engine import (
    EngineArgs,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVEventsConfig,
)

from semblend.integration.vllm.flags import transfer_config
from semblend.integration.vllm.support import WORKER_CLASS

LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 2, 4, 2, 32, 512
BLOCK = 32

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HEADS * HEAD_DIM,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_config(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


def engine_config(
    directory: Path, options: dict[str, Any], *, batch_tokens: int, length: int, sequences: int = 4, ranks: int = 1
) -> Any:
    """What a server would be started with. ``ranks`` only sets the number: no process is started here."""
    args = EngineArgs(
        model=str(write_config(directory)),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        block_size=BLOCK,
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=batch_tokens,
        worker_cls=WORKER_CLASS,
        kv_transfer_config=transfer_config(options),
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
    )
    config = args.create_engine_config()
    config.parallel_config.world_size = ranks
    return config


def cache_config(blocks: int) -> Any:
    import torch

    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=KV_HEADS, head_size=HEAD_DIM, dtype=torch.float32)
    names = [f"model.layers.{layer}.self_attn.attn" for layer in range(LAYERS)]
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(names, spec)])
