"""Move rotary keys to other positions: K computed at position p goes in, K at position p + shift comes out.

Rotations by one angle per pair compose, so the shift alone is enough; the original position is never needed. Each
layer has its own ``Rotation``: models mix layers of several bases with layers that do not rotate at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

# Rows (token x head) rotated at a time: the fp32 scratch then stays in the L2 cache, which is worth a factor of four.
_CHUNK_ROWS = 4096
# From this many tokens on, one call per layer avoids the page faults of one large result for all layers.
_LONG_RUN_TOKENS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """Angle per position of each pair of one layer, in fp32 as engines compute it. No pairs: the layer has no RoPE.

    Pairs are (i, i + rotary_dim / 2), or (2i, 2i + 1) where ``interleaved``, counted from ``first_dim`` of each head.
    """

    inverse_frequencies: torch.Tensor
    interleaved: bool = False
    first_dim: int = 0

    @property
    def rotary_dim(self) -> int:
        return 2 * int(self.inverse_frequencies.shape[0])

    @property
    def is_identity(self) -> bool:
        return not self.rotary_dim

    def angles(self, shift: int) -> tuple[torch.Tensor, torch.Tensor]:
        """fp32 cosine and sine of every pair; the product is taken in fp64 because shifts reach 10^5."""
        turned = self.inverse_frequencies.double() * shift
        return turned.cos().float(), turned.sin().float()

    def is_same(self, other: Rotation) -> bool:
        return (self.interleaved, self.first_dim) == (other.interleaved, other.first_dim) and torch.equal(
            self.inverse_frequencies, other.inverse_frequencies
        )


def no_rotation() -> Rotation:
    """The rotation of a layer without RoPE: keys are copied."""
    return Rotation(torch.empty(0))


def half_split(theta: float, rotary_dim: int) -> Rotation:
    """The unscaled rotation of the NeoX half-split form."""
    if rotary_dim <= 0 or rotary_dim % 2:
        raise ValueError(f"rotary_dim must be even and positive, not {rotary_dim}")
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    return Rotation(1.0 / theta**exponents)


class LayerRotations:
    """The rotation of every layer, in the order of the cache's layers. Equal ones are rotated in one call."""

    def __init__(self, rotations: Sequence[Rotation]) -> None:
        if not rotations:
            raise ValueError("a model has at least one layer")
        self._rotations = tuple(rotations)
        self._spans = tuple(_equal_spans(self._rotations))

    @classmethod
    def same(cls, rotation: Rotation, layers: int) -> LayerRotations:
        return cls((rotation,) * layers)

    def __len__(self) -> int:
        return len(self._rotations)

    def __getitem__(self, layer: int) -> Rotation:
        return self._rotations[layer]

    def digest(self) -> str:
        """Name of these rotations: KV of deployments with equal digests moves in the same way."""
        hasher = hashlib.sha256()
        for rotation in self._rotations:
            hasher.update(f"{rotation.rotary_dim}:{rotation.first_dim}:{rotation.interleaved}:".encode())
            hasher.update(rotation.inverse_frequencies.cpu().numpy().astype("<f4").tobytes())
        return hasher.hexdigest()[:16]

    def move(self, keys: torch.Tensor, shift: int) -> Iterator[torch.Tensor]:
        """Rotated keys layer by layer, from keys[layers, tokens, heads, head_dim]."""
        if keys.shape[0] != len(self._rotations):
            raise ValueError(f"keys of {keys.shape[0]} layers, rotations of {len(self._rotations)}")
        for first, end in self._spans:
            rotation = self._rotations[first]
            if keys.shape[1] < _LONG_RUN_TOKENS:
                yield from rotate_keys(keys[first:end], shift, rotation)
            else:
                for layer in keys[first:end]:
                    yield rotate_keys(layer, shift, rotation)


def _equal_spans(rotations: Sequence[Rotation]) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive layers with equal rotations."""
    first = 0
    for layer in range(1, len(rotations) + 1):
        if layer == len(rotations) or not rotations[layer].is_same(rotations[first]):
            yield first, layer
            first = layer


def rotate_keys(keys: torch.Tensor, shift: int, rotation: Rotation) -> torch.Tensor:
    """Rotate keys[..., tokens, heads, head_dim] by `shift` positions; dimensions outside the rotated ones are kept.

    fp32 inside, the dtype of `keys` outside. A shift of 0, or a layer without RoPE, returns `keys` itself.
    """
    if keys.ndim < 3:
        raise ValueError(f"keys must end in [tokens, heads, head_dim], not {tuple(keys.shape)}")
    if rotation.first_dim + rotation.rotary_dim > keys.shape[-1]:
        raise ValueError(
            f"dimensions {rotation.first_dim} to {rotation.first_dim + rotation.rotary_dim} are rotated, "
            f"but head_dim is {keys.shape[-1]}"
        )
    if shift == 0 or rotation.is_identity:
        return keys
    out = torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)
    first, end = rotation.first_dim, rotation.first_dim + rotation.rotary_dim
    if first:
        out[..., :first].copy_(keys[..., :first])
    if end < keys.shape[-1]:
        out[..., end:].copy_(keys[..., end:])
    cosine, sine = (part.to(keys.device) for part in rotation.angles(shift))
    rotated = (keys[..., first:end].unsqueeze(0), out[..., first:end].unsqueeze(0))
    _rotate_into(*rotated, cosine, sine, rotation.interleaved)
    return out


def _rotate_into(
    keys: torch.Tensor, out: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, interleaved: bool
) -> None:
    if keys.ndim > 4:
        for inner_keys, inner_out in zip(keys, out, strict=True):
            _rotate_into(inner_keys, inner_out, cosine, sine, interleaved)
        return
    half = cosine.shape[0]
    evens, odds = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    layers, tokens, heads, _ = keys.shape
    token_step = max(1, min(tokens, _CHUNK_ROWS // max(1, heads)))
    layer_step = max(1, min(layers, _CHUNK_ROWS // max(1, heads * tokens)))  # short runs: several layers at once
    shape = (2, layer_step, token_step, heads, 2 * half)
    scratch = torch.empty(shape, dtype=torch.float32, device=keys.device)
    for layer in range(0, layers, layer_step):
        for token in range(0, tokens, token_step):
            part = (slice(layer, layer + layer_step), slice(token, token + token_step))
            chunk = keys[part]
            plain, turned = scratch[:, : chunk.shape[0], : chunk.shape[1]]
            plain.copy_(chunk)
            first, second = plain[..., evens], plain[..., odds]
            torch.mul(first, cosine, out=turned[..., evens]).addcmul_(second, sine, value=-1)
            torch.mul(second, cosine, out=turned[..., odds]).addcmul_(first, sine)
            out[part].copy_(turned)
