"""How far each layer's KV deviates in another context, measured on the model: a folder and texts in, a curve out.

A passage follows two contexts that share nothing. Its K and V in one context, with keys rotated to their positions in
the other, are compared with those in the other. Runs with transformers in fp32, no engine. For ``kvmend calibrate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sembase.errors import ConfigurationError
from semblend.integration.rope_config import read_rope
from semblend.kv.rope import Rotation, half_split, rotate_keys
from semblend.plan.deviation_curve import DeviationCurve, Provenance

PASSAGES_EACH: Final = 4  # one donor context, a recipient context of two, and what both hold
_Layers = list[tuple[torch.Tensor, torch.Tensor]]  # K and V [tokens, heads, head size] of each layer


def measured_curve(folder: Path, passages: Sequence[str], prompts: int) -> DeviationCurve:
    """The mean over ``prompts`` pairs of contexts; the floor is that of one prompt computed whole and in two pieces."""
    if len(passages) < PASSAGES_EACH * prompts:
        raise ConfigurationError(
            f"the texts hold {len(passages)} passages; {prompts} pairs of contexts need {PASSAGES_EACH * prompts}"
        )
    tokenizer, model = _opened(folder)
    rotation = _rotation(model.config)
    deviations, floors = [], []
    with torch.inference_mode():
        for number in range(prompts):
            own = passages[PASSAGES_EACH * number :][:PASSAGES_EACH]
            first, second, third, shared = (_ids(tokenizer, text) for text in own)
            donor, recipient = [*first, *shared], [*second, *third, *shared]
            shift = len(recipient) - len(donor)
            computed = _kv(model, recipient)
            tokens = len(shared)
            moved = [(rotate_keys(k, shift, rotation), v) for k, v in _last(_kv(model, donor), tokens)]
            deviations.append(relative_distance(moved, _last(computed, tokens)))
            floors.append(relative_distance(_kv(model, recipient, len(recipient) // 2), computed).mean())
    curve = torch.stack(deviations).mean(dim=0)
    floor = float(torch.stack(floors).mean())
    return DeviationCurve(folder.name, None, tuple(curve.tolist()), floor, Provenance.MEASURED)


def relative_distance(reused: _Layers, computed: _Layers) -> torch.Tensor:
    """|reused - computed| / |computed| of K and V together, one value per layer."""
    found = []
    for mine, true in zip(reused, computed, strict=True):
        gap = sum((a.double() - b.double()).square().sum() for a, b in zip(mine, true, strict=True))
        size = sum(part.double().square().sum() for part in true)
        found.append((gap / size).sqrt())
    return torch.stack(found)


def _opened(folder: Path) -> tuple[Any, Any]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder}: transformers cannot open this model: {error}") from None
    return tokenizer, model.eval()


def _rotation(config: Any) -> Rotation:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = read_rope(config, head_dim)
    if isinstance(rope, str):
        raise ConfigurationError(rope)
    return half_split(rope.theta, rope.rotary_dim)


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(f"{text}\n\n", add_special_tokens=False)["input_ids"]
    return ids


def _kv(model: Any, ids: list[int], cut: int = 0) -> _Layers:
    """K and V of a whole prompt, computed at once or in two pieces."""
    past = None
    for piece in (ids[:cut], ids[cut:]):
        if piece:
            past = model(torch.tensor([piece]), past_key_values=past, use_cache=True, logits_to_keep=1).past_key_values
    assert past is not None
    return [(layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1)) for layer in past.layers]


def _last(layers: _Layers, tokens: int) -> _Layers:
    return [(keys[-tokens:], values[-tokens:]) for keys, values in layers]
