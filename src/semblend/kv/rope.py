"""Move rotary keys to other positions: K computed at position p goes in, K at position p + shift comes out.

Rotations by one angle per pair compose, so the shift alone is enough; the original position is never needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Rows (token x head) rotated at a time: the fp32 scratch then stays in the L2 cache, which is worth a factor of four.
_CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """Angle per position of each pair (i, i + rotary_dim / 2), in fp32 as engines compute it."""

    inverse_frequencies: torch.Tensor

    @property
    def rotary_dim(self) -> int:
        return 2 * int(self.inverse_frequencies.shape[0])

    def angles(self, shift: int) -> tuple[torch.Tensor, torch.Tensor]:
        """fp32 cosine and sine of every pair; the product is taken in fp64 because shifts reach 10^5."""
        turned = self.inverse_frequencies.double() * shift
        return turned.cos().float(), turned.sin().float()


def half_split(theta: float, rotary_dim: int) -> Rotation:
    """The unscaled rotation of the NeoX half-split form."""
    if rotary_dim <= 0 or rotary_dim % 2:
        raise ValueError(f"rotary_dim must be even and positive, not {rotary_dim}")
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    return Rotation(1.0 / theta**exponents)


def rotate_keys(keys: torch.Tensor, shift: int, rotation: Rotation) -> torch.Tensor:
    """Rotate keys[..., tokens, heads, head_dim] by `shift` positions; dimensions beyond rotary_dim are kept.

    fp32 inside, the dtype of `keys` outside. A shift of 0 returns `keys` itself. All layers
    in one call suit short runs; from some 2,000 tokens on a call per layer avoids the page faults of one large result.
    """
    if keys.ndim < 3:
        raise ValueError(f"keys must end in [tokens, heads, head_dim], not {tuple(keys.shape)}")
    if rotation.rotary_dim > keys.shape[-1]:
        raise ValueError(f"rotary_dim {rotation.rotary_dim} exceeds head_dim {keys.shape[-1]}")
    if shift == 0:
        return keys
    out = torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)
    cosine, sine = (part.to(keys.device) for part in rotation.angles(shift))
    _rotate_into(keys.unsqueeze(0), out.unsqueeze(0), cosine, sine)
    return out


def _rotate_into(keys: torch.Tensor, out: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    if keys.ndim > 4:
        for inner_keys, inner_out in zip(keys, out, strict=True):
            _rotate_into(inner_keys, inner_out, cosine, sine)
        return
    half = cosine.shape[0]
    if 2 * half < keys.shape[-1]:
        out[..., 2 * half :].copy_(keys[..., 2 * half :])
    layers, tokens, heads, _ = keys.shape
    token_step = max(1, min(tokens, _CHUNK_ROWS // max(1, heads)))
    layer_step = max(1, min(layers, _CHUNK_ROWS // max(1, heads * tokens)))  # short runs: several layers at once
    shape = (2, layer_step, token_step, heads, 2 * half)
    scratch = torch.empty(shape, dtype=torch.float32, device=keys.device)
    for layer in range(0, layers, layer_step):
        for token in range(0, tokens, token_step):
            part = (slice(layer, layer + layer_step), slice(token, token + token_step), slice(None), slice(2 * half))
            chunk = keys[part]
            plain, turned = scratch[:, : chunk.shape[0], : chunk.shape[1]]
            plain.copy_(chunk)
            first, second = plain[..., :half], plain[..., half:]
            torch.mul(first, cosine, out=turned[..., :half]).addcmul_(second, sine, value=-1)
            torch.mul(second, cosine, out=turned[..., half:]).addcmul_(first, sine)
            out[part].copy_(turned)
