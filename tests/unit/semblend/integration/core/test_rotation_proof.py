"""How keys move is measured on the model: right rotations are found per layer, and everything wrong is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from numpy.typing import NDArray

from semblend.integration.core.rotation_proof import KV, Proof, SelfTestError, prove_rotations
from semblend.kv.rope import Rotation, half_split, no_rotation

pytestmark = pytest.mark.models
HIDDEN, HEADS, DIM, VOCABULARY, LAYERS = 48, 2, 16, 64, 3
ROPE = half_split(1e4, DIM)


class Decoder(torch.nn.Module):
    """Attention and a residual: K and V from the input, rotated by ``rotation``; faults by name."""

    def __init__(self, rotation: Rotation, random: torch.Generator, key_bias: float) -> None:
        super().__init__()
        self.rotation = rotation
        self.query, self.key, self.value = (torch.randn(HIDDEN, HEADS * DIM, generator=random) / 7 for _ in range(3))
        self.out = torch.randn(HEADS * DIM, HIDDEN, generator=random) / 6
        self.bias = torch.zeros(HEADS, DIM)
        self.bias[:, DIM // 2 - 1] = key_bias * DIM**0.5
        self.kv: KV = (torch.empty(0), torch.empty(0))
        self.dtype = torch.float32
        self.faults: dict[str, Any] = {}

    def forward(self, positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        rows = len(hidden)
        query, keys, values = (
            (hidden @ weight).view(rows, HEADS, DIM) for weight in (self.query, self.key, self.value)
        )
        query, keys = (turned(side, positions, self.rotation) for side in (query, keys + self.bias))
        if "norm_after" in self.faults:
            keys = keys * torch.linspace(0.5, 2.0, DIM)
        if "wrong_head" in self.faults:
            keys[:, 1] = turned(keys[:, 1:], positions, half_split(50.0, DIM))[:, 0]
        if "scaled_queries" in self.faults:
            query = query * (1 + 0.3 * torch.log(positions / 256 + 1))[:, None, None]
        if "values_move" in self.faults:
            values = values + 1e-3 * positions[:, None, None] / 100
        if "flat_values" in self.faults:
            values = torch.ones_like(values)
        self.kv = (keys.to(self.dtype), values.to(self.dtype))
        keys, values = (side.float() for side in self.kv)
        scores = torch.einsum("qhd,khd->hqk", query, keys) / DIM**0.5
        later = torch.triu(torch.ones(rows, rows, dtype=torch.bool), 1)
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), values)
        return hidden + mixed.reshape(rows, -1) @ self.out


def turned(keys: torch.Tensor, positions: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """The definition, pair by pair."""
    half, out = rotation.rotary_dim // 2, keys.clone()
    angles = positions[:, None, None].double() * rotation.inverse_frequencies.double()
    cosine, sine = angles.cos().float(), angles.sin().float()
    if rotation.interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    out[..., first] = keys[..., first] * cosine - keys[..., second] * sine
    out[..., second] = keys[..., second] * cosine + keys[..., first] * sine
    return out


class Model:
    def __init__(
        self, rotations: Sequence[Rotation], *, key_bias: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        random = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(VOCABULARY, HIDDEN, generator=random)
        self.decoder_layers = [Decoder(rotation, random, key_bias) for rotation in rotations]
        for layer in self.decoder_layers:
            layer.dtype = dtype
        self.layer_names = [f"layers.{n}.attn" for n in range(len(rotations))]
        self.positions_off = 0
        self.tokens: Callable[[NDArray[np.int64]], NDArray[np.int64]] = np.copy
        self.learned_positions = False

    def compute(self, token_ids: NDArray[np.int64], shift: int) -> list[KV]:
        positions = torch.arange(len(token_ids)) + shift + (self.positions_off if shift else 0)
        hidden = self.embedding[torch.from_numpy(np.array(self.tokens(token_ids)))]
        if self.learned_positions:
            hidden = hidden + torch.sin(positions[:, None] * torch.linspace(0.01, 1, HIDDEN))
        for layer in self.decoder_layers:
            hidden = layer(positions, hidden)
        return [layer.kv for layer in self.decoder_layers]


def prove(model: Model, candidates: Sequence[Rotation] = (ROPE,), boundaries: Sequence[int] = ()) -> Proof:
    each = [tuple(candidates)] * len(model.decoder_layers)
    with torch.inference_mode():
        return prove_rotations(model, lambda: each, vocabulary=VOCABULARY, max_positions=1024, boundaries=boundaries)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("key_bias", [0.0, 50.0])
def test_the_rotation_of_the_model_is_found(dtype: torch.dtype, key_bias: float) -> None:
    proof = prove(Model([ROPE] * LAYERS, key_bias=key_bias, dtype=dtype))
    assert all(layer.rotation.is_same(ROPE) for layer in proof.layers)
    assert proof.forwards <= 8
    assert max(layer.key_error for layer in proof.layers) < 1.0


def test_each_layer_gets_its_own_rotation_and_layers_without_rope_none() -> None:
    slow, other = half_split(1e6, DIM), Rotation(ROPE.inverse_frequencies, interleaved=True)
    partial = half_split(1e4, DIM // 2)
    used = [ROPE, slow, no_rotation(), other, partial]
    proof = prove(Model(used), (ROPE, slow, other, partial))
    assert [layer.rotation.is_same(mine) for layer, mine in zip(proof.layers, used, strict=True)] == [True] * 5


def test_a_model_without_any_rope_is_copied() -> None:
    proof = prove(Model([no_rotation()] * 2), ())
    assert all(layer.rotation.is_identity for layer in proof.layers)


@pytest.mark.parametrize("key_bias", [0.0, 50.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
class TestTokens:
    """The key bias is 50 times the part that depends on the token: K alone would pass all of these in bf16."""

    def test_an_ignored_reversal_is_refused(self, dtype: torch.dtype, key_bias: float) -> None:
        model = Model([ROPE] * LAYERS, key_bias=key_bias, dtype=dtype)
        model.tokens = np.sort
        with pytest.raises(SelfTestError, match=r"layers\.0\.attn: reversed tokens do not give reversed V"):
            prove(model)

    def test_swapped_tokens_are_refused(self, dtype: torch.dtype, key_bias: float) -> None:
        def swapped(ids: NDArray[np.int64]) -> NDArray[np.int64]:
            order = np.arange(len(ids))
            order[[5, 6]] = [6, 5]
            return ids[order]

        model = Model([ROPE] * LAYERS, key_bias=key_bias, dtype=dtype)
        model.tokens = swapped
        with pytest.raises(SelfTestError, match="reversed tokens do not give reversed V"):
            prove(model)

    def test_a_shift_off_by_one_is_refused(self, dtype: torch.dtype, key_bias: float) -> None:
        model = Model([ROPE] * LAYERS, key_bias=key_bias, dtype=dtype)
        model.positions_off = 1
        with pytest.raises(SelfTestError, match="not a rotation of K"):
            prove(model)


def other_frequency(pair: int, factor: float) -> Rotation:
    frequencies = ROPE.inverse_frequencies.clone()
    frequencies[pair] *= factor
    return Rotation(frequencies)


@pytest.mark.parametrize(
    "wrong",
    [
        half_split(1.05e4, DIM),
        half_split(5e5, DIM),
        half_split(1e4, DIM // 2),
        Rotation(ROPE.inverse_frequencies, interleaved=True),
        other_frequency(0, 1.01),
        other_frequency(5, 1.2),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wrong_rotation_is_refused_with_layer_and_number(wrong: Rotation, dtype: torch.dtype) -> None:
    with pytest.raises(SelfTestError, match=r"layers\.0\.attn: K at another position .* no rotation [\d.e+]+, rotated"):
        prove(Model([ROPE] * LAYERS, dtype=dtype), (wrong,))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("norm_after", "not a rotation of K"),
        ("wrong_head", "not a rotation of K"),
        ("values_move", "V depends on the position"),
        ("scaled_queries", "output depends on the position"),
        ("flat_values", "V hardly differs between tokens"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fault_of_one_layer_is_refused_by_its_name(fault: str, reason: str, dtype: torch.dtype) -> None:
    model = Model([ROPE] * LAYERS, dtype=dtype)
    model.decoder_layers[1].faults[fault] = True
    if fault == "values_move":
        model.decoder_layers[1].dtype = torch.float32
    with pytest.raises(SelfTestError, match=rf"layer layers\.1\.attn: .*{reason}"):
        prove(model)


class GivenAngles(torch.nn.Module):
    """As Transformers makes layers: they get cosines and sines as an input instead of positions."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        return self.inner(angles[:, 0].round().long(), hidden)


def test_angles_that_a_layer_is_given_are_not_replayed() -> None:
    model = Model([ROPE] * LAYERS)
    inner = model.decoder_layers
    outer = [GivenAngles(layer) for layer in inner]

    class Outer(Model):
        def compute(self, token_ids: NDArray[np.int64], shift: int) -> list[KV]:
            positions = torch.arange(len(token_ids)) + shift
            hidden = self.embedding[torch.from_numpy(token_ids)]
            for layer in outer:
                hidden = layer(hidden, positions.double()[:, None].expand(-1, DIM).clone())
            return [layer.kv for layer in inner]

    given = Outer([ROPE] * LAYERS)
    given.decoder_layers = outer
    assert all(layer.rotation.is_same(ROPE) for layer in prove(given).layers)


def test_learned_positions_are_refused() -> None:
    model = Model([no_rotation()] * LAYERS)
    model.learned_positions = True
    with pytest.raises(SelfTestError, match=r"layers\.0\.attn: reversed tokens|differs at distance"):
        prove(model, ())


def test_an_effect_that_begins_late_is_seen_at_the_far_end() -> None:
    model = Model([ROPE] * LAYERS)
    late = model.decoder_layers[2]
    own = late.forward

    def forward(positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        late.faults = {"scaled_queries": True} if int(positions[0]) > 900 else {}
        return own(positions, hidden)

    late.forward = forward  # type: ignore[method-assign]
    with pytest.raises(SelfTestError, match=r"layers\.2\.attn: its output depends"):
        prove(model)


def test_every_forward_pass_is_made_before_anything_is_judged() -> None:
    """Ranks compute together: one that refuses must not leave the others waiting."""
    counts = []
    for fault in (None, "norm_after"):
        model = Model([ROPE] * LAYERS)
        if fault:
            model.decoder_layers[0].faults[fault] = True
        calls: list[int] = []
        own = model.compute
        model.compute = lambda ids, shift, own=own, calls=calls: calls.append(shift) or own(ids, shift)  # type: ignore
        try:
            prove(model, boundaries=(257,))
        except SelfTestError:
            assert fault
        counts.append(calls)
    assert counts[0] == counts[1]
    assert 257 in counts[0]


def test_no_hook_remains() -> None:
    model = Model([ROPE] * LAYERS)
    prove(model)
    for layer in model.decoder_layers:
        assert not layer._forward_pre_hooks
        assert not layer._forward_hooks
