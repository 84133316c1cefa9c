"""Requests that loaded KV cannot serve, told by the request alone: the sentence that says why, or nothing."""

from __future__ import annotations

from typing import Any, Final

# Attribute of the engine's request, and what having it means.
_OBSTACLES: Final = (
    ("multimodal_inputs", "images or audio: equal tokens do not mean equal content"),
    ("input_embeds", "embeddings instead of tokens"),
    ("positional_embed_overrides", "overridden embeddings"),
    ("lora_id", "an adapter of its own"),
    ("session", "a session keeps its KV"),
    ("beam_group", "beam search"),
    ("dllm_config", "diffusion decoding"),
    ("token_type_ids", "token types"),
    ("return_routed_experts", "routed experts of every position were asked for"),
    ("return_indexer_topk", "indexer scores of every position were asked for"),
    ("return_pooled_hidden_states", "pooled hidden states were asked for"),
    ("token_indices_to_pool", "pooled hidden states were asked for"),
    ("multi_item_delimiter_indices", "several items are scored at once"),
)


def obstacle_of(req: Any) -> str:
    """Why this request is computed by the engine alone; empty if it need not be."""
    for name, meaning in _OBSTACLES:
        value = getattr(req, name, None)
        if value is not None and value is not False:
            return f"the request has {meaning}" if not meaning.endswith("for") else meaning
    if getattr(req, "return_hidden_states", False):
        return "hidden states of every position were asked for"
    return ""
