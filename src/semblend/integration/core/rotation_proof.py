"""Decides on the loaded model how each layer's keys move: candidates per layer in, the proven rotations out.

The same tokens are computed at several distances in the same slots. With the whole model shifted, V of every layer
must stay and K must be rotated; errors of earlier layers add up, so this only shows what is wrong at large. In the
replay each decoder layer gets the inputs of the unshifted pass and only positions differ: V must be equal bit for bit,
K equal up to rounding for each head and pair, and the layer's output, which shows what queries and masks do with
positions, must stay. Reversed tokens show that each position got its own token. All forward passes come first and are
judged afterwards: ranks compute together, and none may leave early. Cost: 6 to 9 forward passes of 48 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.integration.core.layer_replay import LayerReplay
from semblend.kv.rope import LayerRotations, Rotation, half_split, no_rotation, rotate_keys

TOKENS: Final = 48
NEAR_SHIFTS: Final = (1, 37)
# Largest error of K that rounding explains, per head and pair and relative to its size: K is rounded three times, the
# engine's table once. A wrong angle is an error of its size in radians.
ROUNDING: Final = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
_ANGLE_ROUNDING: Final = 2.0**-23  # of position times frequency in fp32, and of the frequency itself
_OUTPUT_LIMIT: Final = 4.0  # in units of the limit of K: attention rounds scores and weights, too
_WHOLE_LIMIT: Final = 20.0  # in the same units: the errors of all layers before
# What an 8-bit cache adds to the outputs of layers and to everything after the first: attention reads rounded K and V.
_EIGHT_BIT_NOISE: Final = {torch.float8_e4m3fn: 0.06, torch.float8_e5m2: 0.12}
_WHOLE_NOISES: Final = 4.0
_PLANTED_RADIANS: Final = 8.0  # in the same units: the smallest wrong angle that the test promises to see

KV = tuple[torch.Tensor, torch.Tensor]


class SelfTestError(Exception):
    """KV computed by the engine and KV we would have loaded differ."""


class ShiftableModel(Protocol):
    """One prompt in scratch blocks of the loaded model."""

    @property
    def layer_names(self) -> Sequence[str]:
        """Attention layers in the order of the cache."""

    @property
    def decoder_layers(self) -> Sequence[Any]:
        """The modules whose inputs are replayed, in order."""

    def compute(self, token_ids: NDArray[np.int64], shift: int) -> list[KV]:
        """Prefill the tokens in slots 0, 1, ... at positions ``shift``, ``shift + 1``, ...; K and V of every layer,
        [tokens, heads, dim] each, as the cache holds them. V has no elements where K holds everything (MLA)."""


@dataclass(frozen=True, slots=True)
class LayerProof:
    """Largest errors of one layer, in the units of their limits."""

    rotation: Rotation
    key_error: float
    output_error: float
    whole_error: float


@dataclass(frozen=True, slots=True)
class Proof:
    layers: tuple[LayerProof, ...]
    forwards: int

    @property
    def rotations(self) -> LayerRotations:
        return LayerRotations([layer.rotation for layer in self.layers])

    @property
    def largest_error(self) -> float:
        return max(max(layer.key_error, layer.output_error, layer.whole_error) for layer in self.layers)


@dataclass(frozen=True, slots=True)
class _Measured:
    base: list[KV]
    backwards: list[KV]
    whole: dict[int, list[KV]]
    replayed: dict[int, list[KV]]
    outputs: dict[int, list[float]]  # by shift: relative error of each decoder layer's output
    forwards: int
    noise: float  # of a quantised cache


def prove_rotations(
    model: ShiftableModel,
    candidates: Callable[[], Sequence[Sequence[Rotation]]],
    *,
    vocabulary: int,
    max_positions: int,
    boundaries: Sequence[int] = (),
    eight_bits: torch.dtype | None = None,
) -> Proof:
    """The rotation of every layer, or ``SelfTestError`` with the layer and the number that refused it.

    ``candidates`` of each layer are tried beside no rotation; they are read after the last forward pass.
    ``boundaries`` are positions at which the model may change its ways. With a cache of ``eight_bits`` the model must
    give K and V as they are before they are rounded.
    """
    noise = 0.0 if eight_bits is None else _EIGHT_BIT_NOISE[eight_bits]
    measured = _measure(model, vocabulary, max_positions, boundaries, noise)
    return _judge(measured, model.layer_names, candidates())


def _measure(
    model: ShiftableModel, vocabulary: int, max_positions: int, boundaries: Sequence[int], noise: float
) -> _Measured:
    tokens = min(TOKENS, max_positions // 2)
    far = max_positions - tokens
    whole = sorted({far, *(at for at in boundaries if 0 < at < far)})
    near = [shift for shift in NEAR_SHIFTS if shift < far]
    token_ids = np.linspace(1, vocabulary - 1, tokens).astype(np.int64)
    replay = LayerReplay(model.decoder_layers)
    with replay.recording():
        base = model.compute(token_ids, 0)
    backwards = model.compute(token_ids[::-1].copy(), 0)
    shifted = {shift: model.compute(token_ids, shift) for shift in whole}
    replayed: dict[int, list[KV]] = {}
    outputs: dict[int, list[float]] = {}
    for shift in (*near, far):
        with replay.replaying():
            replayed[shift] = model.compute(token_ids, shift)
        outputs[shift] = replay.output_errors()
    return _Measured(base, backwards, shifted, replayed, outputs, 2 + len(shifted) + len(replayed), noise)


def _judge(measured: _Measured, names: Sequence[str], candidates: Sequence[Sequence[Rotation]]) -> Proof:
    found = []
    for layer, name in enumerate(names):
        try:
            found.append(_judge_layer(measured, layer, candidates[layer]))
        except SelfTestError as error:
            raise SelfTestError(f"layer {name}: {error}") from None
    return Proof(tuple(found), measured.forwards)


def _judge_layer(measured: _Measured, layer: int, candidates: Sequence[Rotation]) -> LayerProof:
    keys, values = measured.base[layer]
    _demand_energy(keys, values)
    rotation, key_error = _fitting(measured, layer, candidates)
    _plant_wrong_rotations(measured, layer, rotation)
    content = _content(keys, values, rotation)
    for shift, replayed in measured.replayed.items():
        if not torch.equal(_content(*replayed[layer], rotation), content):
            raise SelfTestError(f"V depends on the position: it differs at distance {shift} with equal inputs")
    if layer == 0:
        _check_tokens(measured, rotation)
    output_error = _output_error(measured, layer, keys.dtype)
    whole_error = _whole_error(measured, layer, rotation)
    return LayerProof(rotation, key_error, output_error, whole_error)


def _content(keys: torch.Tensor, values: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """What depends on the token alone: V, or the part of K that is not rotated where the cache holds no V."""
    return values if values.numel() else keys[..., : rotation.first_dim]


def _demand_energy(keys: torch.Tensor, values: torch.Tensor) -> None:
    """Constant K or V would pass every test."""
    for name, side in (("K", keys), ("V", values)):
        if not side.numel():
            continue
        varying = float(_without_mean(side).square().sum())
        size = float(side.float().square().sum())
        if not varying > (ROUNDING.get(side.dtype, 1.0) ** 2) * size:
            raise SelfTestError(
                f"{name} hardly differs between tokens ({varying:.3g} of {size:.3g}): nothing is proven"
            )


def limit_of(dtype: torch.dtype, distance: int) -> float:
    rounding = ROUNDING.get(dtype)
    if rounding is None:
        raise SelfTestError(f"a cache of {dtype} has no known rounding")
    return rounding + distance * _ANGLE_ROUNDING


def _fitting(measured: _Measured, layer: int, candidates: Sequence[Rotation]) -> tuple[Rotation, float]:
    distinct: list[Rotation] = [no_rotation()]
    for candidate in candidates:
        if not any(candidate.is_same(other) for other in distinct):
            distinct.append(candidate)
    errors = [_key_error(measured, layer, candidate) for candidate in distinct]
    fitting = [at for at, error in enumerate(errors) if error <= 1.0]
    if len(fitting) == 1:
        return distinct[fitting[0]], errors[fitting[0]]
    if fitting:
        raise SelfTestError("several rotations fit K: the distances are too short to tell them apart")
    listed = ", ".join(
        f"{'no rotation' if one.is_identity else 'rotated'} {e:.3g}" for one, e in zip(distinct, errors, strict=True)
    )
    raise SelfTestError(f"K at another position is not a rotation of K (error in units of the limit: {listed})")


def _key_error(measured: _Measured, layer: int, rotation: Rotation, extra_shift: int = 0) -> float:
    """Largest error of any head and pair at any distance, in units of its limit."""
    keys = measured.base[layer][0].float()
    worst = 0.0
    for shift, replayed in measured.replayed.items():
        moved = rotate_keys(keys, shift + extra_shift, rotation)
        errors = _pair_errors(moved, replayed[layer][0].float(), rotation)
        worst = max(worst, float(errors.nan_to_num(torch.inf).max()) / limit_of(measured.base[layer][0].dtype, shift))
    return worst


def _pair_errors(moved: torch.Tensor, computed: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """[heads, pairs]: root of error over size, summed over the tokens. What is not rotated counts as one more pair."""
    error, size = (moved - computed).square(), computed.square()
    return (_by_pair(error, rotation) / _by_pair(size, rotation).clamp_min(torch.finfo(torch.float32).tiny)).sqrt()


def _by_pair(squares: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    first, end, half = rotation.first_dim, rotation.first_dim + rotation.rotary_dim, rotation.rotary_dim // 2
    summed = squares.sum(dim=0)  # [heads, dim]
    rotated, kept = summed[:, first:end], torch.cat([summed[:, :first], summed[:, end:]], dim=1)
    pairs = rotated.reshape(-1, half, 2).sum(dim=2) if rotation.interleaved else rotated[:, :half] + rotated[:, half:]
    return torch.cat([pairs, kept.sum(dim=1, keepdim=True)], dim=1) if kept.shape[1] else pairs


def _plant_wrong_rotations(measured: _Measured, layer: int, rotation: Rotation) -> None:
    """The test must refuse a rotation that is wrong: one position off, and each pair by a small angle."""
    if rotation.is_identity:
        keys = measured.base[layer][0]
        if _key_error(measured, layer, half_split(1e4, keys.shape[-1] // 2 * 2)) <= 1.0:
            raise SelfTestError("rotated keys would pass for keys of a layer without RoPE: nothing is proven")
        return
    if _key_error(measured, layer, rotation, extra_shift=1) <= 1.0:
        raise SelfTestError("keys one position off would pass: nothing is proven")
    far = max(measured.replayed)
    keys, computed = measured.base[layer][0], measured.replayed[far][layer][0].float()
    limit = limit_of(keys.dtype, far)
    planted = Rotation(
        (rotation.inverse_frequencies.double() + _PLANTED_RADIANS * limit / far).float(),
        rotation.interleaved,
        rotation.first_dim,
    )
    seen = _pair_errors(rotate_keys(keys.float(), far, planted), computed, rotation)[:, : rotation.rotary_dim // 2]
    # a pair without any size carries no position: no rotation of it can be wrong
    empty = _by_pair(computed.square(), rotation)[:, : rotation.rotary_dim // 2] == 0
    if not bool(((seen > limit) | empty).all()):
        head, pair = divmod(int((seen + empty * 10.0).argmin()), seen.shape[1])
        raise SelfTestError(f"a wrong angle of pair {pair} of head {head} would pass: nothing is proven")


def _check_tokens(measured: _Measured, rotation: Rotation) -> None:
    """The first layer of the reversed tokens: each position must hold its own token, seen by V and by K."""
    (keys, values), (back_keys, back_values) = measured.base[0], measured.backwards[0]
    own, found = _content(keys, values, rotation), _content(back_keys, back_values, rotation)
    limit = _WHOLE_LIMIT * limit_of(keys.dtype, 0)
    error = _token_error(own.flip(0), found, _without_mean(own))
    if not error <= limit:
        raise SelfTestError(f"reversed tokens do not give reversed V (error {error:.3g}, limit {limit:.3g})")
    if _token_error(own, found, _without_mean(own)) <= limit:
        raise SelfTestError("V does not tell tokens apart: nothing is proven")
    count = len(keys)
    moved = torch.cat(
        [rotate_keys(keys[count - 1 - at : count - at].float(), 2 * at - count + 1, rotation) for at in range(count)]
    )
    # K at position 0 differs between tokens by what is left without the mean; a bias would make any error look small
    plain = torch.cat([rotate_keys(keys[at : at + 1].float(), -at, rotation) for at in range(count)])
    varying = _without_mean(plain).square().sum(dim=2).mean(dim=0)  # [heads]
    size = plain.square().sum(dim=2).mean(dim=0)
    off = (moved - back_keys.float()).square().sum(dim=2).amax(dim=0)
    allowed = limit**2 * varying + (4 * limit_of(keys.dtype, count)) ** 2 * size
    if not bool((off <= allowed).all()):
        head = int((off / allowed).argmax())
        raise SelfTestError(f"reversed tokens do not give reversed K in head {head}")


def _token_error(expected: torch.Tensor, found: torch.Tensor, varying: torch.Tensor) -> float:
    """Largest error of one position, relative to how much tokens differ."""
    error = (expected.float() - found.float()).square().flatten(1).sum(dim=1).amax()
    return float((error / varying.square().flatten(1).sum(dim=1).mean()).sqrt())


def _output_error(measured: _Measured, layer: int, dtype: torch.dtype) -> float:
    worst = 0.0
    for shift, errors in measured.outputs.items():
        if layer < len(errors):
            worst = max(worst, errors[layer] / (_OUTPUT_LIMIT * limit_of(dtype, shift) + measured.noise))
    if not worst <= 1.0:
        raise SelfTestError(f"its output depends on the position with equal inputs ({worst:.3g} times the limit)")
    return worst


def _whole_error(measured: _Measured, layer: int, rotation: Rotation) -> float:
    """Median over the tokens, because a router of experts may decide otherwise for a few of them."""
    keys, values = measured.base[layer]
    content = _content(keys, values, rotation)
    worst = 0.0
    for shift, shifted in measured.whole.items():
        limit = _WHOLE_LIMIT * limit_of(keys.dtype, shift) + _WHOLE_NOISES * measured.noise
        moved = rotate_keys(keys.float(), shift, rotation)
        varying = _without_mean(content).square().flatten(1).sum(dim=1).mean()
        for name, expected, found, size in (
            ("V", content, _content(*shifted[layer], rotation), varying),
            ("K", moved, shifted[layer][0], moved.square().flatten(1).sum(dim=1).mean()),
        ):
            errors = (expected.float() - found.float()).square().flatten(1).sum(dim=1)
            error = float((errors / size).sqrt().median()) / limit
            if not error <= 1.0:
                raise SelfTestError(f"{name} differs at distance {shift} by {error:.3g} times the limit of {limit:.3g}")
            worst = max(worst, error)
    return worst


def _without_mean(side: torch.Tensor) -> torch.Tensor:
    return side.float() - side.float().mean(dim=0)
